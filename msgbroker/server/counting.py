"""What operators hear of a broker's work: a line a minute of what it counted, and alarms where reading has stopped."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Final

import structlog

from msgbroker.server import clock
from msgbroker.server.committer import CommitterCounters
from msgbroker.server.delivery import DeliveryHub
from msgbroker.server.group_delivery import GroupDelivery
from msgbroker.server.lane_slot import LaneSlot
from msgbroker.server.loops import pause
from msgdb.lane_records import LaneKey

log = structlog.get_logger(__name__)

_LOOK_SECONDS: Final = 1.0
_COUNT_SECONDS: Final = 60.0


class BrokerCounters:
    """See the module."""

    def __init__(self, hub: DeliveryHub, committer: CommitterCounters, now: Callable[[], float] = clock.now) -> None:
        self._hub = hub
        self._committer = committer
        self._now = now
        self._counted_at = now()
        self._counted = self.totals()
        self._alarmed: dict[LaneKey, tuple[str, str]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Look after the lanes, and count, until *stop* is set."""
        while not stop.is_set():
            self.watch_once()
            if self._now() - self._counted_at >= _COUNT_SECONDS:
                self.count_once()
            await pause(stop, _LOOK_SECONDS)

    def totals(self) -> dict[str, int]:
        """Return all that was counted since the start."""
        stored = {f"committer_{name}": count for name, count in dataclasses.asdict(self._committer).items()}
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
        """Say which lanes stopped reading since the last look, because too much of them waits for another attempt."""
        alarmed = {
            slot.lane.key: (slot, (group.route.name, slot.topic.name))
            for group in self._hub.groups.values()
            for slot in group.slots.values()
            if slot.lane.alarm
        }
        for key in alarmed.keys() - self._alarmed.keys():
            slot, (group_name, topic_name) = alarmed[key]
            log.error(
                "lanes.alarm_started",
                group=group_name,
                topic=topic_name,
                lane=key,
                redelivery_count=slot.lane.redelivery_count,
            )
        for key in self._alarmed.keys() - alarmed.keys():
            group_name, topic_name = self._alarmed[key]
            # Below the limit again, or another broker's: that one says so if it goes on.
            log.warning("lanes.alarm_ended", group=group_name, topic=topic_name, lane=key)
        self._alarmed = {key: names for key, (_, names) in alarmed.items()}

    def _lanes(self) -> list[tuple[GroupDelivery, LaneSlot]]:
        return [(group, slot) for group in self._hub.groups.values() for slot in group.slots.values()]
