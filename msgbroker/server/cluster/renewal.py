"""Renewal: the leases of all lanes that are served here are moved on together, several times in the life of one.

A renewal changes only rows that still have this broker's id and the lane's epoch; where they have not, somebody else
has claimed the lane, and it is closed here (`lease_terms` says why that is in time).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

import structlog

from msgbroker.server import clock
from msgbroker.server.alarms.set_aside import divided
from msgbroker.server.cluster.lease_terms import LeaseTerms
from msgbroker.server.cluster.placement import LanesByGroup
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.deliver.lanes.work import LaneWork, Work
from msgdb.lanes.leases import Renewal, renew
from msgdb.lanes.records import LaneEpoch, LaneKey
from msgdb.store import MessageStore

log = structlog.get_logger(__name__)

_TRUSTED_AFTER_SECONDS: Final = 10.0
"""How long a lane that failed must have been served since, to be all right again."""
_END_BY_THEMSELVES: Final = frozenset({Work.LOOKING, Work.READING, Work.FETCHING, Work.PERSISTING})
"""The kinds of work whose failures end with a success of the same kind."""


class LeaseRenewal:
    """Renews the leases of the lanes that the hub serves, and closes those that are lost."""

    def __init__(self, *, store: MessageStore, broker_id: UUID, hub: DeliveryHub, terms: LeaseTerms) -> None:
        self._store = store
        self._broker_id = broker_id
        self._hub = hub
        self._terms = terms
        self._renewed_at = 0.0

    async def renew_if_due(self, wanted: LanesByGroup) -> None:
        """Renew all leases if it is time to. Raises StoreUnavailableError."""
        now = clock.now()
        if now - self._renewed_at < self._terms.renewed_after_seconds:
            return
        history = self._store.history
        here = {owned.lane.key: owned for _, owned in self._hub.lanes()}
        held_up: set[LaneKey] = set()

        async def renew_some(lanes: Sequence[LaneEpoch]) -> None:
            # In the history in which the lanes were claimed, or not at all: in another one it would say nothing.
            async with self._store.transaction_in(history) as connection:
                renewal = await renew(connection, self._broker_id, lanes, self._terms.seconds)
            held_up.update(renewal.held_up)
            self._take([here[lane.key] for lane in lanes], renewal, now)

        lanes = [LaneEpoch(owned.lane.key, owned.lane.epoch) for owned in here.values()]
        await divided(lanes, renew_some, self._not_renewed)
        if held_up:
            # With the next step, not in a quarter of the lease.
            log.warning("cluster.renewal_held_up", lanes=len(held_up))
        else:
            self._renewed_at = now
        self._forget_failures(here, wanted)

    def _take(self, lanes: Sequence[OwnedLane], renewal: Renewal, asked_at: float) -> None:
        """Note until when the leases run; they are counted from before the store was asked."""
        answered_at = clock.now()
        lease_until = self._terms.relied_on_until(asked_at)
        for owned in lanes:
            # A lease that had passed when the answer came is over, though the store may have renewed it: the hub gave
            # up what the lane had when it passed. So the lane is claimed anew, from what is stored, with a new epoch.
            if answered_at >= owned.lease_until or owned.lane.key in renewal.lost:
                self._lose(owned)
            elif owned.lane.key not in renewal.held_up:
                owned.lease_until = lease_until

    def _lose(self, owned: OwnedLane) -> None:
        if self._hub.give_up(owned):
            log.warning("cluster.lane_lost", lane=owned.lane.key)

    def _not_renewed(self, lane: LaneEpoch, error: Exception) -> None:
        # Its lease runs on by the clock, and the lane is stopped with it.
        self._hub.aside.failed_unless_held(LaneWork(lane.key, Work.RENEWING), error)

    def _forget_failures(self, here: Mapping[LaneKey, OwnedLane], wanted: LanesByGroup) -> None:
        """Clear the alarms of lanes that have been served well for a while, or are another broker's now."""
        now = clock.now()
        for unit in list(self._hub.aside.units):
            owned = here.get(unit.key)
            if owned is None:
                group = self._hub.groups.get(unit.key.group_id)
                is_over = group is None or unit.key.queue_id not in wanted.get(group, {})
            else:
                is_over = unit.work not in _END_BY_THEMSELVES and now - owned.opened_at >= _TRUSTED_AFTER_SECONDS
            if is_over:
                self._hub.aside.worked(unit)
