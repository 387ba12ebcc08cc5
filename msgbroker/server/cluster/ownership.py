"""Which lanes are this broker's: kept, left and claimed step by step, until they are those that should be.

Lanes of a group are spread over the brokers that have instances of it, by a rule that every broker works out for itself
from the registry (`placement`). The rule only says who *should* own a lane. Who *does* is said by a lease in msgdb
(`lease_terms`): a planned move drains a lane before its lease is given up, and a dead broker's lanes are free once its
leases have passed.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.server.cluster.claims import LaneClaims
from msgbroker.server.cluster.cut_off import CutOff
from msgbroker.server.cluster.heartbeats import Heartbeats
from msgbroker.server.cluster.misplaced_instances import MisplacedInstances
from msgbroker.server.cluster.placement import LanesByGroup, WantedLanes
from msgbroker.server.cluster.planned_moves import PlannedMoves
from msgbroker.server.cluster.renewal import LeaseRenewal
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.loops import woken
from msgdb.postgres.history import History

log = structlog.get_logger(__name__)

_STEP_SECONDS: Final = 0.5


class LaneOwnership:
    """Brings the lanes that this broker owns closer to those that it should own, one step after the other."""

    def __init__(
        self,
        *,
        hub: DeliveryHub,
        heartbeats: Heartbeats,
        cut_off: CutOff,
        wanted: WantedLanes,
        renewal: LeaseRenewal,
        moves: PlannedMoves,
        claims: LaneClaims,
        misplaced: MisplacedInstances,
    ) -> None:
        self.wake = asyncio.Event()
        """Set when there may be something to do before the next step."""
        self._hub = hub
        self._heartbeats = heartbeats
        self._cut_off = cut_off
        self._wanted = wanted
        self._renewal = renewal
        self._moves = moves
        self._claims = claims
        self._misplaced = misplaced
        self._is_draining = False

    async def run(self, stop: asyncio.Event) -> None:
        """Take, keep and give up lanes until *stop* is set."""
        while not stop.is_set():
            try:
                await self.step_once()
            except StoreUnavailableError:
                # Leases run on by the clock: lanes that cannot be renewed in time are stopped by the hub.
                log.warning("cluster.store_unavailable")
            await woken(stop, self.wake, _STEP_SECONDS)
            # Whoever came or went here, the others are to hear of it.
            self._heartbeats.wake.set()

    async def step_once(self) -> None:
        """Bring what this broker owns closer to what it should own. Raises StoreUnavailableError."""
        # First: what is served goes on, however long the rest of the step takes.
        await self._renewal.renew_if_due(self._wanted.latest)
        wanted = await self._lanes_wanted()
        # Before claims: a lane that was stopped is given up, and may be claimed anew.
        await self._moves.go_on(wanted)
        await self._claims.claim_missing(wanted)
        self._end_refused()
        self._misplaced.relocate(wanted, self._wanted.owners, self._heartbeats.other_brokers())

    def drain(self) -> None:
        """Own nothing from now on: the lanes move to others, as with any planned move."""
        self._is_draining = True
        self.wake.set()

    async def leave(self, seconds_max: float) -> None:
        """Persist, and give up all lanes; within *seconds_max*, whether they could be persisted or not."""
        await self._moves.leave_all(seconds_max)

    def follow_history(self, history: History) -> None:
        """Give up what was served in the store's former history, and claim it anew in this one.

        Nothing of it is persisted, and no lease is given up: what is known of both is of the former history.
        """
        kept = self._hub.forget_log()
        self._moves.forget()
        self._claims.follow_history(history, kept)
        self.wake.set()

    async def _lanes_wanted(self) -> LanesByGroup:
        """Return the lanes that this broker should own."""
        if self._is_draining or self._cut_off.is_behind:
            return {}
        return await self._wanted.among(self._heartbeats.rivals())

    def _end_refused(self) -> None:
        """End the streams of groups that are not served any more, once their lanes are given up."""
        for group in self._hub.groups.values():
            if group.refusal is not None and not group.lanes:
                for instance in group.instances.values():
                    instance.close(group.refusal)
