"""What operators hear of a broker's work: a line a minute of what it counted; alarms of lanes that read no further."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Final

import structlog

from msgbroker.contract.limits import REDELIVERIES_PER_LANE_MAX
from msgbroker.server import clock
from msgbroker.server.alarms.board import AlarmBoard
from msgbroker.server.alarms.names import lane_alarm
from msgbroker.server.deliver.expressions.dear_expressions import slow_alarms
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.owned_lane import LaneSlot
from msgbroker.server.loops import pause
from msgbroker.server.publish.committer import Committer
from msgdb.reports.alarms import Alarm, AlarmKind

log = structlog.get_logger(__name__)

_LOOK_SECONDS: Final = 1.0
_COUNT_SECONDS: Final = 60.0
_COMMIT_SECONDS_MAX: Final = 5.0


class BrokerCounters:
    """See the module."""

    def __init__(
        self,
        hub: DeliveryHub,
        committer: Committer,
        board: AlarmBoard,
        now: Callable[[], float] = clock.now,
    ) -> None:
        self._hub = hub
        self._committer = committer
        self._board = board
        self._now = now
        self._counted_at = now()
        self._counted = self.totals()

    async def run(self, stop: asyncio.Event) -> None:
        """Look after the lanes, and count, until *stop* is set."""
        while not stop.is_set():
            self.watch_once()
            if self._now() - self._counted_at >= _COUNT_SECONDS:
                self.count_once()
            await pause(stop, _LOOK_SECONDS)

    def totals(self) -> dict[str, int]:
        """Return all that was counted since the start."""
        stored = {f"committer_{name}": count for name, count in dataclasses.asdict(self._committer.counters).items()}
        return {**stored, **self._hub.counters.totals(slot for _, slot in self._lanes())}

    def count_once(self) -> bool:
        """Log what was counted since the start, if anything changed; return whether it did."""
        self._counted_at = self._now()
        totals = self.totals()
        if totals == self._counted:
            return False
        self._counted = totals
        log.info("broker.counted", **totals)
        return True

    def watch_once(self) -> None:
        """Raise an alarm for what is at its limit: lanes that read no further, dear expressions, commits that wait."""
        self._board.replace(
            AlarmKind.REDELIVERIES_FULL,
            [_redeliveries_full(group, slot) for group, slot in self._lanes() if slot.lane.alarm],
        )
        self._board.replace(AlarmKind.EXPRESSION_SLOW, slow_alarms(self._hub))
        self._watch_commits()

    def _lanes(self) -> list[tuple[GroupDelivery, LaneSlot]]:
        return [(group, slot) for group in self._hub.groups.values() for slot in group.slots.values()]

    def _watch_commits(self) -> None:
        seconds = self._committer.in_flight_seconds
        if seconds >= _COMMIT_SECONDS_MAX:
            detail = (
                f"a transaction has taken more than {_COMMIT_SECONDS_MAX:g} s: is a standby away, or the disk slow?"
            )
            self._board.raise_alarm(Alarm(AlarmKind.COMMIT_WAITS, "storing", detail))
        else:
            self._board.clear(AlarmKind.COMMIT_WAITS, "storing")


def _redeliveries_full(group: GroupDelivery, slot: LaneSlot) -> Alarm:
    detail = f"{REDELIVERIES_PER_LANE_MAX} messages wait for another attempt: no more is read until some are settled"
    return lane_alarm(AlarmKind.REDELIVERIES_FULL, group.route, slot.topic, slot.lane.key.queue_id, detail=detail)
