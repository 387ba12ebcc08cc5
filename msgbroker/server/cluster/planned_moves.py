"""Planned moves: the lanes that this broker serves no longer, from the stop until somebody else may claim them.

A lane that is to move is stopped: nothing more of it is read or handed out. It is given up when it is drained, that is,
when all that was handed out is answered or has passed its time for that, and when that is persisted: so its next owner
gives nothing twice. Each lane by itself: one whose row somebody has locked is tried again with the next step, and keeps
no other from its next owner.

Before that it is held back: it hands nothing out, and may go on. Of a handler that was begun a moment ago nobody knows
yet whether it takes longer than the ack timeout. If it does, its instance extends its message in time, and to start it
anew somewhere else would help nobody: then the lane goes on here as if it were wanted, until nothing of it is extended,
but no longer than the group allows such a handler, as others may have begun meanwhile. After that it is stopped, and
extends nothing any more; what is still unanswered when its time is over comes again with the next owner, uncounted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final
from uuid import UUID

import structlog

from confdb.routes import TopicRoute
from msgbroker.server import clock
from msgbroker.server.alarms.set_aside import divided
from msgbroker.server.cluster.placement import LanesByGroup
from msgbroker.server.deliver.checkpoints import Checkpointer
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.lanes.owned_lane import LaneSlot
from msgbroker.server.deliver.lanes.work import LaneWork, Work
from msgdb.lanes.leases import release
from msgdb.lanes.records import LaneKey, OwnedLane
from msgdb.postgres.failures import RowsHeldError
from msgdb.store import MessageStore

log = structlog.get_logger(__name__)

_PERSIST_SECONDS_MAX: Final = 30.0
"""How long a planned move waits until what was settled can be persisted."""
_LEAVE_PAUSE_SECONDS: Final = 0.1
_NO_QUEUES: Final[Mapping[int, TopicRoute]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _GivenUp:
    """A lane that is served here no longer, and is still this broker's by its row: until then nobody serves it."""

    lane: OwnedLane
    lease_until: float
    """Others may claim it then, whatever the row says."""


class PlannedMoves:
    """Stops the lanes that this broker should not own any more, and gives them up once that takes nothing from anybody.

    Their leases are given up last, when nothing is handed out any more and what was settled is persisted: whoever
    claims a lane then goes on where it ended here.
    """

    def __init__(
        self,
        *,
        store: MessageStore,
        broker_id: UUID,
        hub: DeliveryHub,
        checkpointer: Checkpointer,
        persist_seconds_max: float = _PERSIST_SECONDS_MAX,
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._hub = hub
        self._checkpointer = checkpointer
        self._persist_seconds_max = persist_seconds_max
        self._leaving: dict[LaneSlot, float | None] = {}
        """Until when each waits to be persisted; None: it is not drained yet."""
        self._postponed: dict[LaneSlot, float] = {}
        """Until when each may wait for what its instances are at."""
        self._given_up: dict[LaneKey, _GivenUp] = {}

    def forget(self) -> None:
        """Give up nothing of a former history of the store: those leases pass by themselves."""
        self._leaving.clear()
        self._postponed.clear()
        self._given_up.clear()

    async def go_on(self, wanted: LanesByGroup) -> None:
        """Stop what is not *wanted* here, and give up what may go. Raises StoreUnavailableError."""
        now = clock.now()
        postponed: dict[LaneSlot, float] = {}
        for group in list(self._hub.groups.values()):
            wanted_here = wanted.get(group, _NO_QUEUES)
            for queue_id, slot in list(group.slots.items()):
                if slot in self._leaving:
                    continue
                with group.trusted(slot):
                    # One that was stopped because it was not understood is claimed anew, even if it is again by now.
                    if queue_id in wanted_here and not slot.lane.is_stopped:
                        _let_go_on(group, slot)
                    elif self._may_wait(group, slot, now):
                        postponed[slot] = self._postponed.get(slot, now + group.route.handle_seconds_max)
                    else:
                        group.stop_lane(slot)
                        self._leaving[slot] = None
        self._postponed = postponed
        self._leaving = {
            slot: until for slot, until in self._leaving.items() if self._hub.group_serving(slot) is not None
        }
        drained = [slot for slot in self._leaving if slot.lane.is_drained]
        if drained:
            # In this order: what was settled is in the store before the lane is closed, and the lane is closed before
            # others may claim it. So nothing that was settled here is given out by its next owner, and nobody serves
            # it beside that one.
            await self._persist(drained)
            self._close(self._ready(drained))
        await self._release()

    def _may_wait(self, group: GroupDelivery, slot: LaneSlot, now: float) -> bool:
        """Return whether a lane that is to move waits for what is in flight, and hold it back or let it go on."""
        until = self._postponed.get(slot, now + group.route.handle_seconds_max)
        if slot.lane.is_stopped or now >= until or slot.lane.in_flight_count == 0:
            return False
        if slot.lane.has_extended:
            _let_go_on(group, slot)
        else:
            _hold_back(group, slot)
        return True

    async def leave_all(self, seconds_max: float) -> None:
        """Persist, and give up all lanes; within *seconds_max*, whether they could be persisted or not.

        Raises StoreUnavailableError.
        """
        last_try_at = clock.now() + seconds_max
        while True:
            is_last_try = clock.now() >= last_try_at
            if await self.leave_once(is_last_try=is_last_try) or is_last_try:
                return
            # Somebody has locked a row: only for a moment, as a rule.
            await asyncio.sleep(_LEAVE_PAUSE_SECONDS)

    async def leave_once(self, *, is_last_try: bool) -> bool:
        """Give up all lanes, drained or not, as far as they are persisted; return whether that is all of them.

        With *is_last_try* those that are not persisted go, too. Raises StoreUnavailableError.
        """
        slots: list[LaneSlot] = []
        for group, slot in list(self._hub.lanes()):
            slots.append(slot)
            with group.trusted(slot):
                slot.lane.stop()
        await self._persist(slots)
        self._close([slot for slot in slots if is_last_try or slot.lane.is_persisted])
        await self._release()
        return not self._given_up and not any(self._hub.lanes())

    async def _persist(self, slots: Sequence[LaneSlot]) -> None:
        for slot in slots:
            # It may have nothing to persist but what stopping it gave rows to.
            self._hub.unpersisted.add(slot)
        await self._checkpointer.flush_once()

    def _ready(self, drained: Sequence[LaneSlot]) -> list[LaneSlot]:
        """Return those that are persisted, or that could not be for so long that their queues shall not wait more."""
        now = clock.now()
        ready: list[LaneSlot] = []
        for slot in drained:
            if slot not in self._leaving:
                # Forgotten meanwhile, with the history it was of.
                continue
            until = self._leaving[slot]
            if until is None:
                until = self._leaving[slot] = now + self._persist_seconds_max
            if slot.lane.is_persisted or now >= until:
                ready.append(slot)
        return ready

    def _close(self, slots: Collection[LaneSlot]) -> None:
        """Serve these no longer."""
        for slot in slots:
            if self._hub.group_serving(slot) is None:
                # Lost meanwhile: it is another broker's already.
                continue
            key = slot.lane.key
            self._given_up[key] = _GivenUp(OwnedLane(key, slot.lane.epoch), slot.lease_until)
            self._hub.give_up(slot)

    async def _release(self) -> None:
        """Let others claim what is served here no longer. What cannot be given up is theirs when its lease passes."""
        history = self._store.history
        released: set[LaneKey] = set()

        async def release_some(lanes: Sequence[OwnedLane]) -> None:
            async with self._store.transaction_in(history) as connection:
                released.update(await release(connection, self._broker_id, lanes))

        def not_released(lane: OwnedLane, error: Exception) -> None:
            if not isinstance(error, RowsHeldError):
                self._given_up.pop(lane.key, None)
                self._hub.aside.failed(LaneWork(lane.key, Work.RELEASING), error)

        await divided([given.lane for given in self._given_up.values()], release_some, not_released)
        now = clock.now()
        self._given_up = {
            key: given for key, given in self._given_up.items() if key not in released and now < given.lease_until
        }
        if released:
            log.info("cluster.lanes_released", count=len(released))


def _hold_back(group: GroupDelivery, slot: LaneSlot) -> None:
    if not slot.lane.is_held_back:
        slot.lane.hold_back()
        group.take_back_unwritten(slot)


def _let_go_on(group: GroupDelivery, slot: LaneSlot) -> None:
    if slot.lane.is_held_back:
        slot.lane.go_on()
        group.activate(slot)
