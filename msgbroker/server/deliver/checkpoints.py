"""Persisting what the lanes settled, a few times a second: many lanes in a transaction, but not so many that it lasts.

Cursors, redeliveries and dead letters of the same moment commit together, each lane guarded by its epoch. A lane whose
guard matched nothing has another owner: it is closed here. One whose rows somebody has locked is kept for the next
time, and one that the store refuses for an unknown reason is set aside; neither holds up the others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, TypeAlias
from uuid import UUID

import structlog

from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.server import clock
from msgbroker.server.alarms.set_aside import divided
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.deliver.lanes.work import LaneWork, Work
from msgbroker.server.loops import pause, woken
from msgdb.lanes.checkpoints import checkpoint, prepare
from msgdb.lanes.records import LaneCheckpoint
from msgdb.postgres.history import History
from msgdb.store import MessageStore

log = structlog.get_logger(__name__)

CHANGES_MAX: Final = 2_000
"""How many rows, or as much in ranges, one transaction writes. A lane that has more is one by itself: it persists all
of it at once."""
PREPARED_HERE_MAX: Final = 500
"""How many changes are put together on the event loop; more takes milliseconds, and is done in a thread."""

LaneToPersist: TypeAlias = tuple[OwnedLane, LaneCheckpoint]


class Checkpointer:
    """Persists what the lanes of a hub settled: all that have something, and one flush at a time."""

    def __init__(self, hub: DeliveryHub, store: MessageStore, broker_id: UUID, interval_seconds: float = 0.2) -> None:
        self._hub = hub
        self._store = store
        self._broker_id = broker_id
        self._interval_seconds = interval_seconds
        self._one_at_a_time = asyncio.Lock()

    async def run(self, stop: asyncio.Event) -> None:
        """Flush, whenever a lane has changed, until *stop* is set."""
        while not stop.is_set():
            await woken(stop, self._hub.unpersisted.wake)
            try:
                await self.flush_once()
            except StoreUnavailableError:
                # The lanes keep it all: the next flush has it.
                log.warning("checkpoints.store_unavailable")
            await pause(stop, self._interval_seconds)

    async def flush_once(self) -> int:
        """Persist what all touched lanes have; return how many lanes had something."""
        async with self._one_at_a_time:
            waiting = deque(self._hub.unpersisted.take())
            count = 0
            while waiting:
                history = self._store.history
                chunk = self._next_chunk(waiting)
                try:
                    await divided(chunk, partial(self._write, history), self._set_aside)
                except BaseException:
                    for owned, due in chunk:
                        self._keep(owned, due)
                    for owned in waiting:
                        self._hub.unpersisted.add(owned)
                    raise
                count += len(chunk)
            return count

    def _next_chunk(self, waiting: deque[OwnedLane]) -> list[LaneToPersist]:
        """Take lanes for the next transaction: not so many that it, or putting it together, takes long."""
        now = clock.now()
        chunk: list[LaneToPersist] = []
        changes = 0
        while waiting and changes < CHANGES_MAX:
            owned = waiting.popleft()
            if self._hub.aside.is_waiting(LaneWork(owned.lane.key, Work.PERSISTING)):
                self._hub.unpersisted.add(owned)
                continue
            due = self._checkpoint_of(owned, now)
            if due is not None:
                chunk.append((owned, due))
                changes += 1 + due.change_count
        return chunk

    def _checkpoint_of(self, owned: OwnedLane, now: float) -> LaneCheckpoint | None:
        group = self._hub.group_serving(owned)
        if group is None:
            # Given up meanwhile: what it has is nobody's any more.
            return None
        with group.trusted(owned):
            return owned.lane.checkpoint(now)
        # mypy does not see that `trusted` may swallow what fails.
        return None  # type: ignore[unreachable]

    async def _write(self, history: History, chunk: Sequence[LaneToPersist]) -> None:
        """Persist these in one transaction, and tell the lanes."""
        names = {group.route.group_id: group.route.name for group in self._hub.groups.values()}
        due_checkpoints = [due for _, due in chunk]
        if sum(due.change_count for due in due_checkpoints) > PREPARED_HERE_MAX:
            # So much of it would hold everybody up.
            prepared = await asyncio.to_thread(prepare, due_checkpoints, names)
        else:
            prepared = prepare(due_checkpoints, names)
        async with self._store.transaction_in(history) as connection:
            persisted, held_up = await checkpoint(connection, self._broker_id, prepared)
        for owned, due in chunk:
            if due.key in persisted:
                owned.lane.confirm(due)
                owned.trace.dead_lettered(due.dead_letters)
                self._hub.aside.worked(LaneWork(due.key, Work.PERSISTING))
            elif due.key in held_up:
                self._keep(owned, due)
            else:
                self._lose(owned)
        if held_up:
            log.warning("checkpoints.held_up", lanes=len(held_up))

    def _set_aside(self, part: LaneToPersist, error: Exception) -> None:
        """Keep what cannot be written for later: for soon, if only somebody has locked its rows."""
        owned, due = part
        self._keep(owned, due)
        self._hub.aside.failed_unless_held(LaneWork(due.key, Work.PERSISTING), error)

    def _keep(self, owned: OwnedLane, due: LaneCheckpoint) -> None:
        if owned.lane.is_outstanding(due):
            owned.lane.abandon(due)
            self._hub.unpersisted.add(owned)

    def _lose(self, owned: OwnedLane) -> None:
        log.warning("checkpoints.lane_lost", lane=owned.lane.key)
        self._hub.give_up(owned)
