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
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.deliver.lanes.work import LaneWork, Work
from msgdb.lanes.leases import release
from msgdb.lanes.records import LaneEpoch, LaneKey
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

    lane: LaneEpoch
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
        self._stopped: dict[OwnedLane, float | None] = {}
        """The stopped lanes, with until when each waits to be persisted; None: it is not drained yet."""
        self._postponed: dict[OwnedLane, float] = {}
        """The lanes that wait for what their instances are at, held back or going on, with until when each may."""
        self._given_up: dict[LaneKey, _GivenUp] = {}

    def forget(self) -> None:
        """Give up nothing of a former history of the store: those leases pass by themselves."""
        self._stopped.clear()
        self._postponed.clear()
        self._given_up.clear()

    async def go_on(self, wanted: LanesByGroup) -> None:
        """Stop what is not *wanted* here, and give up what may go. Raises StoreUnavailableError."""
        now = clock.now()
        postponed: dict[OwnedLane, float] = {}
        for group in list(self._hub.groups.values()):
            wanted_here = wanted.get(group, _NO_QUEUES)
            for queue_id, owned in list(group.lanes.items()):
                if owned in self._stopped:
                    continue
                with group.trusted(owned):
                    # One that was stopped because it was not understood is claimed anew, even if it is again by now.
                    if queue_id in wanted_here and not owned.lane.is_stopped:
                        _let_go_on(group, owned)
                    elif self._may_wait(group, owned, now):
                        postponed[owned] = self._postponed.get(owned, now + group.route.handle_seconds_max)
                    else:
                        group.stop_lane(owned)
                        self._stopped[owned] = None
        self._postponed = postponed
        self._stopped = {
            owned: until for owned, until in self._stopped.items() if self._hub.group_serving(owned) is not None
        }
        drained = [owned for owned in self._stopped if owned.lane.is_drained]
        if drained:
            # In this order: what was settled is in the store before the lane is closed, and the lane is closed before
            # others may claim it. So nothing that was settled here is given out by its next owner, and nobody serves
            # it beside that one.
            await self._persist(drained)
            self._close(self._ready(drained))
        await self._release()

    def _may_wait(self, group: GroupDelivery, owned: OwnedLane, now: float) -> bool:
        """Return whether a lane that is to move waits for what is in flight, and hold it back or let it go on."""
        until = self._postponed.get(owned, now + group.route.handle_seconds_max)
        if owned.lane.is_stopped or now >= until or owned.lane.in_flight_count == 0:
            return False
        if owned.lane.has_extended:
            _let_go_on(group, owned)
        else:
            _hold_back(group, owned)
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
        lanes: list[OwnedLane] = []
        for group, owned in list(self._hub.lanes()):
            lanes.append(owned)
            with group.trusted(owned):
                owned.lane.stop()
        await self._persist(lanes)
        self._close([owned for owned in lanes if is_last_try or owned.lane.is_persisted])
        await self._release()
        return not self._given_up and not any(self._hub.lanes())

    async def _persist(self, lanes: Sequence[OwnedLane]) -> None:
        for owned in lanes:
            # It may have nothing to persist but what stopping it gave rows to.
            self._hub.unpersisted.add(owned)
        await self._checkpointer.flush_once()

    def _ready(self, drained: Sequence[OwnedLane]) -> list[OwnedLane]:
        """Return those that are persisted, or that could not be for so long that their queues shall not wait more."""
        now = clock.now()
        ready: list[OwnedLane] = []
        for owned in drained:
            if owned not in self._stopped:
                # Forgotten meanwhile, with the history it was of.
                continue
            until = self._stopped[owned]
            if until is None:
                until = self._stopped[owned] = now + self._persist_seconds_max
            if owned.lane.is_persisted or now >= until:
                ready.append(owned)
        return ready

    def _close(self, lanes: Collection[OwnedLane]) -> None:
        """Serve these lanes no longer, and remember to release them."""
        for owned in lanes:
            if self._hub.group_serving(owned) is None:
                # Lost meanwhile: it is another broker's already.
                continue
            key = owned.lane.key
            self._given_up[key] = _GivenUp(LaneEpoch(key, owned.lane.epoch), owned.lease_until)
            self._hub.give_up(owned)

    async def _release(self) -> None:
        """Let others claim what is served here no longer. What cannot be given up is theirs when its lease passes."""
        history = self._store.history
        released: set[LaneKey] = set()

        async def release_some(lanes: Sequence[LaneEpoch]) -> None:
            async with self._store.transaction_in(history) as connection:
                released.update(await release(connection, self._broker_id, lanes))

        def not_released(lane: LaneEpoch, error: Exception) -> None:
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


def _hold_back(group: GroupDelivery, owned: OwnedLane) -> None:
    if not owned.lane.is_held_back:
        owned.lane.hold_back()
        group.take_back_unwritten(owned)


def _let_go_on(group: GroupDelivery, owned: OwnedLane) -> None:
    if owned.lane.is_held_back:
        owned.lane.go_on()
        group.activate(owned)
