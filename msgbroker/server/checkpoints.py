"""Persisting what the lanes settled: all of them in one transaction, a few times a second.

Cursors, redeliveries and dead letters of the same moment commit together, each lane guarded by its epoch. A lane whose
guard matched nothing has another owner: it is closed here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from uuid import UUID

import structlog

from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.server import clock
from msgbroker.server.delivery import DeliveryHub
from msgbroker.server.lane_slot import LaneSlot
from msgbroker.server.loops import pause
from msgdb.cursors import checkpoint
from msgdb.lane_records import LaneCheckpoint
from msgdb.store import MessageStore

log = structlog.get_logger(__name__)


class Checkpointer:
    """See the module."""

    def __init__(self, hub: DeliveryHub, store: MessageStore, broker_id: UUID, interval_seconds: float = 0.2) -> None:
        self._hub = hub
        self._store = store
        self._broker_id = broker_id
        self._interval_seconds = interval_seconds
        self._one_at_a_time = asyncio.Lock()

    async def run(self, stop: asyncio.Event) -> None:
        """Flush until *stop* is set."""
        while not stop.is_set():
            await self._hub.persist.wait()
            self._hub.persist.clear()
            try:
                await self.flush_once()
            except StoreUnavailableError:
                # The lanes keep it all: the next flush has it.
                log.warning("checkpoints.store_unavailable")
                self._hub.persist.set()
            await pause(stop, self._interval_seconds)

    async def flush_once(self) -> int:
        """Persist what all touched lanes have; return how many lanes had something."""
        async with self._one_at_a_time:
            slots, self._hub.dirty_slots = self._hub.dirty_slots, set()
            try:
                return await self._flush(slots)
            except StoreUnavailableError:
                self._hub.dirty_slots |= slots
                raise

    async def _flush(self, slots: Iterable[LaneSlot]) -> int:
        now = clock.now()
        marks: list[tuple[LaneSlot, LaneCheckpoint]] = []
        for slot in slots:
            mark = slot.lane.checkpoint(now)
            if mark is not None:
                marks.append((slot, mark))
        if not marks:
            return 0
        names = {group.route.group_id: group.route.name for group in self._hub.groups.values()}
        try:
            async with self._store.connection() as connection:
                persisted = await checkpoint(connection, self._broker_id, [mark for _, mark in marks], names)
        except BaseException:
            for slot, mark in marks:
                slot.lane.abandon(mark)
            raise
        for slot, mark in marks:
            if mark.key in persisted:
                slot.lane.confirm(mark)
            else:
                self._lose(slot)
        return len(marks)

    def _lose(self, slot: LaneSlot) -> None:
        log.warning("checkpoints.lane_lost", lane=slot.lane.key)
        group = self._hub.groups.get(slot.lane.key.group_id)
        if group is not None and group.slots.get(slot.lane.key.queue_id) is slot:
            self._hub.close_lane(group, slot.lane.key.queue_id)
