"""This broker among its equals: heartbeats, which lanes are its own, and the leases they are held by.

Lanes of a group are spread over the brokers that have instances of it, by a rule every broker computes for itself from
the registry. The rule only says who *should* own a lane; who *does* is the row in `cursor`, taken with a new epoch and
a lease by the database's clock. A planned move drains first (`planned_moves`); a dead broker's lanes are free once its
leases end.

Heartbeats go to confdb, leases to msgdb: each has its own loop, and neither waits for the other's database.

Where msgdb goes on with another history (a standby was promoted), the last renewals may be missing from it: a lane that
looks free may be served by a broker that has not heard of it yet. So for the length of a lease nobody claims anything
but what it served itself until then.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import structlog

from confdb.brokers import BrokerBeat, BrokerRegistry, LiveBroker
from confdb.routes import GroupRoute, Snapshot
from confdb.store import as_outage
from msgbroker.contract.errors import ConfigUnavailableError, StoreUnavailableError
from msgbroker.server import clock
from msgbroker.server.alarms.set_aside import SetAside, divided
from msgbroker.server.cluster.cut_off import CutOff
from msgbroker.server.cluster.misplaced_instances import Relocations
from msgbroker.server.cluster.placement import LanesByGroup, WantedLanes
from msgbroker.server.cluster.planned_moves import PlannedMoves
from msgbroker.server.cluster.recovery import LaneOpening
from msgbroker.server.cluster.renewal import LeaseRenewal
from msgbroker.server.deliver.checkpoints import Checkpointer
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.lane_work import LaneWork, Work
from msgbroker.server.log.topic_queues import QueueMap
from msgbroker.server.loops import PatientCall, pause_or_wake
from msgdb.lanes.leases import claim
from msgdb.lanes.records import ClaimedLane, LaneKey, LaneToClaim
from msgdb.postgres.failures import RowsHeldError
from msgdb.postgres.history import History
from msgdb.store import MessageStore

log = structlog.get_logger(__name__)

_LEAVE_PAUSE_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """How a broker keeps its place among the others."""

    lease_seconds: float = 8.0
    """How long the lanes of a broker that died stay with it."""
    lease_margin_seconds: float = 1.0
    """A lane is stopped so long before its lease can have run out."""
    step_seconds: float = 0.5
    beat_seconds: float = 0.5
    beat_seconds_max: float = 3.0
    """How long a beat may go unanswered before that is said."""
    persist_seconds_max: float = 30.0
    """How long a planned move waits until what was settled can be persisted."""
    relocate_after_seconds: float = 3.0
    """An instance whose broker has had no lane for its group for so long is told where they are."""
    registry_trusted_seconds: float = 10.0
    """Without the registry for longer, a broker takes any free lane of its groups."""


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """Who this broker is."""

    broker_id: UUID
    address: str
    process_version: str
    features: frozenset[str] = frozenset()
    """Those of `confdb.features` that it understands."""


class Cluster:
    """See the module."""

    def __init__(
        self,
        identity: BrokerIdentity,
        registry: BrokerRegistry,
        store: MessageStore,
        hub: DeliveryHub,
        checkpointer: Checkpointer,
        queues: QueueMap,
        snapshot: Callable[[], Snapshot],
        topics_aside: SetAside[int],
        cut_off: CutOff,
        config: ClusterConfig | None = None,
    ) -> None:
        self.identity = identity
        self.config = config or ClusterConfig()
        self.cut_off = cut_off
        self.brokers: Sequence[LiveBroker] = ()
        """Those alive at the last beat, this one included."""
        self.is_draining = False
        self.wake = asyncio.Event()
        """Set when there may be something to do before the next round."""
        self.beaten_version: int | None = None
        """The configuration that the registry says this broker obeys."""
        self._registry = registry
        self._beat = PatientCall(self._beat_now, self.config.beat_seconds_max)
        self._beat_wake = asyncio.Event()
        self._store = store
        self._hub = hub
        self._snapshot = snapshot
        self._beaten_at = clock.now()
        self._relocations = Relocations(hub, snapshot, identity.features, self.config.relocate_after_seconds)
        self._wanted = WantedLanes(identity.broker_id, hub, queues, snapshot, topics_aside, identity.features)
        self._opening = LaneOpening(store, identity.broker_id, hub)
        self._renewal = LeaseRenewal(
            store, identity.broker_id, hub, self.config.lease_seconds, self.config.lease_margin_seconds
        )
        self._moves = PlannedMoves(
            store, identity.broker_id, hub, checkpointer, persist_seconds_max=self.config.persist_seconds_max
        )
        self._kept: set[LaneKey] = set()
        """What this broker served when the store went on with another history."""
        self._claims_free_at = self._free_at(store.history)
        self._epoch_floor = store.history.epoch_floor

    async def run(self, stop: asyncio.Event) -> None:
        """Step until *stop* is set."""
        while not stop.is_set():
            try:
                await self.step_once()
            except StoreUnavailableError:
                # Leases run on by the clock: lanes that cannot be renewed in time are stopped by the hub.
                log.warning("cluster.store_unavailable")
            await pause_or_wake(self.wake, self.config.step_seconds)
            # Whoever came or went here, the others are to hear of it.
            self._beat_wake.set()

    async def run_beats(self, stop: asyncio.Event) -> None:
        """Beat until *stop* is set."""
        while not stop.is_set():
            try:
                with as_outage():
                    await self.beat_once()
            except (ConfigUnavailableError, TimeoutError) as error:
                # The others see this broker as dead after a while; its lanes stay its own by their leases.
                log.warning("cluster.registry_unavailable", problem=str(error))
            await pause_or_wake(self._beat_wake, self.config.beat_seconds)

    async def step_once(self) -> None:
        """Bring what this broker owns closer to what it should own."""
        await self._renewal.renew_if_due(self._wanted.latest)
        wanted = await self._wanted_lanes()
        await self._moves.go_on(wanted)
        await self._claim_missing(wanted)
        self._end_refused()
        self._relocations.relocate(wanted, self._wanted.owners, self.other_brokers())

    async def leave_lanes(self, seconds_max: float) -> None:
        """Persist, and give up all lanes; within *seconds_max*, whether they could be persisted or not."""
        last_try_at = clock.now() + seconds_max
        while True:
            is_last_try = clock.now() >= last_try_at
            if await self._moves.leave(is_last_try=is_last_try) or is_last_try:
                return
            # Somebody has locked a row: only for a moment, as a rule.
            await asyncio.sleep(_LEAVE_PAUSE_SECONDS)

    async def leave_registry(self) -> None:
        """Strike this broker off the registry."""
        await self._registry.leave(self.identity.broker_id)

    def follow_history(self, history: History) -> None:
        """Give up what was served in the store's former history, and claim it anew in this one."""
        self._kept = self._hub.forget_log()
        self._moves.forget()
        self._claims_free_at = self._free_at(history)
        self._epoch_floor = history.epoch_floor
        self.wake.set()

    def _free_at(self, history: History) -> float:
        return clock.now() - history.age_seconds + self.config.lease_seconds

    def wake_all(self) -> None:
        """Let both loops look around now."""
        self.wake.set()
        self._beat_wake.set()

    def other_brokers(self) -> list[LiveBroker]:
        """Return the live brokers but this one."""
        return [broker for broker in self.brokers if broker.broker_id != self.identity.broker_id]

    def groups_elsewhere(self) -> set[int]:
        """Return the groups that have instances at other brokers."""
        return {group_id for broker in self.other_brokers() for group_id in broker.groups}

    # --- the registry -----------------------------------------------------------------------------------------------

    async def beat_once(self) -> None:
        """Say that this broker is alive, and hear who else is.

        Raises ConfigUnavailableError, or TimeoutError when there is no answer.
        """
        await self._beat()

    async def _beat_now(self) -> None:
        snapshot = self._snapshot()
        # Whoever waits for it to be active relies on it that nothing leaves by an older one.
        version = self._hub.outgoing.obeyed_version(snapshot.version)
        asked_at = clock.now()
        groups = {} if self.is_draining else self._instance_counts()
        beat = BrokerBeat(
            broker_id=self.identity.broker_id,
            address=self.identity.address,
            host=socket.gethostname(),
            pid=os.getpid(),
            snapshot_version=version,
            draining=self.is_draining,
            groups=groups,
            process_version=self.identity.process_version,
            features=self.identity.features,
            withheld=self._relocations.withheld_to_tell(snapshot),
        )
        self.brokers = await self._registry.beat(beat)
        self.cut_off.beaten(asked_at)
        self.beaten_version = version
        self._beaten_at = clock.now()

    def _instance_counts(self) -> dict[int, int]:
        return {group_id: len(group.instances) for group_id, group in self._hub.groups.items() if group.instances}

    async def _wanted_lanes(self) -> LanesByGroup:
        """Return the lanes that this broker should own."""
        if self.is_draining or self.cut_off.is_behind:
            return {}
        is_registry_trusted = clock.now() - self._beaten_at <= self.config.registry_trusted_seconds
        # Without it nobody knows who is alive: let the leases decide.
        return await self._wanted.among(self.other_brokers() if is_registry_trusted else ())

    # --- taking and leaving -----------------------------------------------------------------------------------------

    async def _claim_missing(self, wanted: LanesByGroup) -> None:
        """Claim what should be this broker's and is not, and serve it."""
        history = self._store.history
        missing = self._missing(wanted)
        started_at = clock.now()
        claimed: list[ClaimedLane] = []

        async def claim_some(lanes: Sequence[LaneToClaim]) -> None:
            async with self._store.transaction_in(history) as connection:
                seconds, version = self.config.lease_seconds, self._snapshot().version
                claimed.extend(
                    await claim(
                        connection,
                        self.identity.broker_id,
                        lanes,
                        seconds,
                        epoch_floor=self._epoch_floor,
                        config_version=version,
                    )
                )

        await divided(missing, claim_some, self._not_claimed)
        if not claimed:
            return
        if not await self.cut_off.is_current():
            # Asked after the claim: whoever reports a change from now on sees who owns the lanes. They are given back.
            wanted = {}
        lease_until = started_at + self.config.lease_seconds - self.config.lease_margin_seconds
        opened = await self._opening.open(claimed, wanted, lease_until, history)
        log.info("cluster.lanes_claimed", count=opened)

    def _missing(self, wanted: LanesByGroup) -> list[LaneToClaim]:
        missing = [
            _lane_to_claim(group.route, topics[queue_id].topic_id, queue_id)
            for group, topics in wanted.items()
            for queue_id in topics.keys() - group.slots.keys()
        ]
        if clock.now() < self._claims_free_at:
            missing = [lane for lane in missing if lane.key in self._kept]
        aside = self._hub.aside
        if aside.units:
            # Not yet, where it failed a moment ago.
            missing = [lane for lane in missing if not any(aside.is_waiting(LaneWork(lane.key, w)) for w in Work)]
        return missing

    def _not_claimed(self, lane: LaneToClaim, error: Exception) -> None:
        if not isinstance(error, RowsHeldError):
            self._hub.aside.failed(LaneWork(lane.key, Work.CLAIMING), error)

    # --- groups that are not served any more -------------------------------------------------------------------------

    def _end_refused(self) -> None:
        """End the streams of groups that are not served any more, once their lanes are given up."""
        for group in self._hub.groups.values():
            if group.refusal is not None and not group.slots:
                for instance in group.instances.values():
                    instance.close(group.refusal)


def _lane_to_claim(route: GroupRoute, topic_id: int, queue_id: int) -> LaneToClaim:
    """Return what to claim. A new cursor starts where the earliest of the group's subscriptions to the topic does."""
    initial_offset = min(
        (s.start_offsets.get(queue_id, 0) for s in route.subscriptions if s.topic_id == topic_id),
        default=0,
    )
    return LaneToClaim(route.group_id, "", queue_id, initial_offset)
