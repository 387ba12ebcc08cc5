"""What a broker counts, where the sums come from, and what is said of them.

Each lane counts for itself (`LaneCounters`), and its matcher counts what failed; a lane that is given up leaves its
counts here. What concerns no lane that is served is counted here at once. Beside these stands what the committer counts
of what it stores. `totals` adds it all up, under the names by which `say` tells it, once a minute if anything changed;
docs/operating.md tells operators what each of them is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from msgbroker.contract import limits
from msgbroker.engine.lane.config import LaneCounters
from msgbroker.engine.verdicts import Held
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class BrokerCounters:
    """Counted since this broker's start."""

    lanes_clamped: int = 0
    """Lanes whose cursor lay beyond the end of a log that had lost it."""
    ends_lost: int = 0
    """Queues whose end went back while lanes here read them."""
    closed: LaneCounters = field(default_factory=LaneCounters)
    """What lanes counted that are not here any more, with the verdicts on them that still came."""
    closed_failed_evaluations: int = 0
    """How often an expression failed on a message of those lanes."""
    _said: dict[str, int] = field(default_factory=dict)

    def lane_closed(self, owned: OwnedLane) -> None:
        """Keep what was counted in a lane that goes."""
        self.closed = _sum((self.closed, owned.lane.counters))
        self.closed_failed_evaluations += owned.failed_evaluations

    def settled_elsewhere(self, held: Held) -> None:
        """Count a verdict on a lane that is not here any more as stale: for what may have been in flight at most."""
        self.closed.stale += sum(min(end - first, limits.LANE_WINDOW_MAX) for first, end in held.ranges)

    def totals(self, lanes: Iterable[OwnedLane], committed: Mapping[str, int]) -> dict[str, int]:
        """Return all counts by their names: with those of the lanes that are here, and those of the committer."""
        here = list(lanes)
        return {
            **{f"committer_{name}": count for name, count in committed.items()},
            **dataclasses.asdict(_sum((self.closed, *(owned.lane.counters for owned in here)))),
            "failed_evaluations": self.closed_failed_evaluations + sum(owned.failed_evaluations for owned in here),
            "lanes_clamped": self.lanes_clamped,
            "ends_lost": self.ends_lost,
        }

    def say(self, totals: dict[str, int]) -> bool:
        """Log *totals*, if anything has changed since they were logged last; return whether it has."""
        if all(count == self._said.get(name, 0) for name, count in totals.items()):
            return False
        self._said = totals
        log.info("broker.counted", **totals)
        return True


def _sum(counters: Iterable[LaneCounters]) -> LaneCounters:
    rows = zip(*(dataclasses.astuple(each) for each in counters), strict=True)
    return LaneCounters(*(sum(row) for row in rows))
