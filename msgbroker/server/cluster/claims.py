"""Claims: how a lane that should be this broker's becomes its own, and is served.

A claim succeeds only where nobody owns the lane or its lease has passed (`lease_terms` says why that is safe). Where
msgdb goes on with another history (a standby was promoted) the last renewals may be missing from it: a lane that looks
free may be served by a broker that has not heard of it yet. So for the length of a lease a broker claims nothing but
what it served itself until then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

import structlog

from confdb.routes import GroupRoute, Snapshot
from msgbroker.server import clock
from msgbroker.server.alarms.set_aside import divided
from msgbroker.server.cluster.cut_off import CutOff
from msgbroker.server.cluster.lease_terms import LeaseTerms
from msgbroker.server.cluster.placement import LanesByGroup
from msgbroker.server.cluster.recovery import LaneRecovery
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.lanes.work import LaneWork, Work
from msgdb.lanes.leases import claim
from msgdb.lanes.records import ClaimedLane, LaneKey, LaneToClaim
from msgdb.postgres.history import History
from msgdb.store import MessageStore

log = structlog.get_logger(__name__)


class LaneClaims:
    """Claims the lanes that should be this broker's and are not, and has them served."""

    def __init__(
        self,
        *,
        store: MessageStore,
        broker_id: UUID,
        hub: DeliveryHub,
        snapshot: Callable[[], Snapshot],
        cut_off: CutOff,
        recovery: LaneRecovery,
        terms: LeaseTerms,
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._hub = hub
        self._snapshot = snapshot
        self._cut_off = cut_off
        self._recovery = recovery
        self._terms = terms
        self._kept: set[LaneKey] = set()
        """What this broker served when the store went on with another history."""
        self._free_at = self._free_in(store.history)

    def follow_history(self, history: History, kept: set[LaneKey]) -> None:
        """Claim in the store's new *history* only what was *kept* until now, while the leases of the former one run.

        What was kept was this broker's by its own clock: nobody else can have claimed it before, nor does now.
        """
        self._kept = kept
        self._free_at = self._free_in(history)

    def _free_in(self, history: History) -> float:
        """Return when every lease of the histories before *history* has passed."""
        return clock.now() - history.age_seconds + self._terms.seconds

    async def claim_missing(self, wanted: LanesByGroup) -> None:
        """Claim what is *wanted* and is not served here, and serve it. Raises StoreUnavailableError."""
        history = self._store.history
        # From before the store is asked: what it grants begins later, and so ends later than is counted on here.
        asked_at = clock.now()
        claimed = await self._claim(self._missing(wanted), history)
        if not claimed:
            return
        if not await self._cut_off.is_current():
            # Asked after the claim: whoever reports a change from now on sees who owns the lanes. They are given back.
            wanted = {}
        opened = await self._recovery.open(claimed, wanted, self._terms.relied_on_until(asked_at), history)
        log.info("cluster.lanes_claimed", count=opened)

    async def _claim(self, missing: Sequence[LaneToClaim], history: History) -> list[ClaimedLane]:
        claimed: list[ClaimedLane] = []

        async def claim_some(lanes: Sequence[LaneToClaim]) -> None:
            # In this history, or not at all: which lanes may be claimed was decided by it.
            async with self._store.transaction_in(history) as connection:
                claimed.extend(
                    await claim(
                        connection,
                        self._broker_id,
                        lanes,
                        self._terms.seconds,
                        epoch_floor=history.epoch_floor,
                        config_version=self._snapshot().version,
                    )
                )

        await divided(missing, claim_some, self._not_claimed)
        return claimed

    def _missing(self, wanted: LanesByGroup) -> list[LaneToClaim]:
        missing = [
            _lane_to_claim(group.route, topics[queue_id].topic_id, queue_id)
            for group, topics in wanted.items()
            for queue_id in topics.keys() - group.lanes.keys()
        ]
        if clock.now() < self._free_at:
            missing = [lane for lane in missing if lane.key in self._kept]
        aside = self._hub.aside
        if aside.units:
            # Not yet, where it failed a moment ago.
            missing = [lane for lane in missing if not any(aside.is_waiting(LaneWork(lane.key, w)) for w in Work)]
        return missing

    def _not_claimed(self, lane: LaneToClaim, error: Exception) -> None:
        self._hub.aside.failed_unless_held(LaneWork(lane.key, Work.CLAIMING), error)


def _lane_to_claim(route: GroupRoute, topic_id: int, queue_id: int) -> LaneToClaim:
    """Return what to claim. A new cursor starts where the earliest of the group's subscriptions to the topic does."""
    initial_offset = min(
        (s.start_offsets.get(queue_id, 0) for s in route.subscriptions if s.topic_id == topic_id),
        default=0,
    )
    return LaneToClaim(route.group_id, "", queue_id, initial_offset)
