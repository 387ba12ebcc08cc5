"""What a broker counts of its deliveries: sums over lanes, those that it has given up included."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field

from msgbroker.engine.lane.config import LaneCounters
from msgbroker.server.deliver.owned_lane import LaneSlot


@dataclass(slots=True)
class HubCounters:
    """Counted since the start."""

    lanes_clamped: int = 0
    """Lanes whose cursor lay beyond the end of a log that had lost it."""
    ends_lost: int = 0
    """Queues whose end went back while lanes here read them."""
    closed: LaneCounters = field(default_factory=LaneCounters)
    """Of the lanes that are not here any more."""
    closed_failed_evaluations: int = 0

    def lane_closed(self, slot: LaneSlot) -> None:
        """Keep what was counted in a lane that goes."""
        self.closed = _sum((self.closed, slot.lane.counters))
        self.closed_failed_evaluations += slot.failed_evaluations

    def totals(self, slots: Iterable[LaneSlot]) -> dict[str, int]:
        """Return all counts, with those of the lanes that are here."""
        here = list(slots)
        return {
            **dataclasses.asdict(_sum((self.closed, *(slot.lane.counters for slot in here)))),
            "failed_evaluations": self.closed_failed_evaluations + sum(slot.failed_evaluations for slot in here),
            "lanes_clamped": self.lanes_clamped,
            "ends_lost": self.ends_lost,
        }


def _sum(counters: Iterable[LaneCounters]) -> LaneCounters:
    rows = zip(*(dataclasses.astuple(each) for each in counters), strict=True)
    return LaneCounters(*(sum(row) for row in rows))
