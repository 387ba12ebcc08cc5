"""This broker among its equals: heartbeats, which lanes are its own, and the leases they are held by.

Lanes of a group are spread over the brokers that have instances of it, by a rule every broker computes for itself from
the registry. The rule only says who *should* own a lane; who *does* is the row in `cursor`, taken with a new epoch and
a lease by the database's clock. A planned move drains first; a dead broker's lanes are free once its leases end.

Heartbeats go to confdb, leases to msgdb: each has its own loop, and neither waits for the other's database.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final
from uuid import UUID

import structlog

from confdb.brokers import BrokerBeat, BrokerRegistry, LiveBroker
from confdb.routes import GroupRoute, Snapshot, TopicRoute
from msgbroker.contract.errors import ConfigUnavailableError, StoreUnavailableError
from msgbroker.server import clock
from msgbroker.server.checkpoints import Checkpointer
from msgbroker.server.delivery import DeliveryHub
from msgbroker.server.lane_opening import within_log
from msgbroker.server.lane_slot import LaneSlot
from msgbroker.server.loops import PatientCall, pause_or_wake
from msgbroker.server.queue_map import QueueMap
from msgbroker.server.wanted_lanes import LanesByGroup, WantedLanes
from msgbroker.v1 import subscriber_pb2
from msgdb.cursors import claim, load_redeliveries, release, renew
from msgdb.lane_records import LaneKey, LaneToClaim, OwnedLane
from msgdb.store import MessageStore

log = structlog.get_logger(__name__)

_NO_QUEUES: Final[Mapping[int, TopicRoute]] = MappingProxyType({})


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
    drain_seconds: float = 30.0
    """How long a planned move waits for what is in flight."""
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
        config: ClusterConfig | None = None,
    ) -> None:
        self.identity = identity
        self.config = config or ClusterConfig()
        self.brokers: Sequence[LiveBroker] = ()
        """Those alive at the last beat, this one included."""
        self.is_draining = False
        self.wake = asyncio.Event()
        """Set when there may be something to do before the next round."""
        self.beaten_version: int | None = None
        """The configuration that the registry says this broker routes by."""
        self._registry = registry
        self._beat = PatientCall(self._beat_now, self.config.beat_seconds_max)
        self._beat_wake = asyncio.Event()
        self._store = store
        self._hub = hub
        self._checkpointer = checkpointer
        self._snapshot = snapshot
        self._beaten_at = clock.now()
        self._renewed_at = 0.0
        self._without_lanes_since: dict[int, float] = {}
        self._wanted = WantedLanes(identity.broker_id, hub, queues, snapshot)
        self._leaving: list[LaneSlot] = []

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
                await self.beat_once()
            except (ConfigUnavailableError, TimeoutError):
                # The others see this broker as dead after a while; its lanes stay its own by their leases.
                log.warning("cluster.registry_unavailable")
            await pause_or_wake(self._beat_wake, self.config.beat_seconds)

    async def step_once(self) -> None:
        """Bring what this broker owns closer to what it should own."""
        await self._renew_leases()
        wanted = await self._wanted_lanes()
        await self._leave_unwanted(wanted)
        await self._claim_missing(wanted)
        self._relocate_idle_instances(wanted)

    async def leave_lanes(self) -> None:
        """Persist, and give up all lanes."""
        slots = [slot for group in self._hub.groups.values() for slot in group.slots.values()]
        for slot in slots:
            # What stopping gives rows to is persisted with the rest.
            slot.lane.stop()
            self._hub.touched(slot)
        await self._checkpointer.flush_once()
        await self._release(slots)

    async def leave_registry(self) -> None:
        """Strike this broker off the registry."""
        await self._registry.leave(self.identity.broker_id)

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
        version = self._snapshot().version
        beat = BrokerBeat(
            broker_id=self.identity.broker_id,
            address=self.identity.address,
            host=socket.gethostname(),
            pid=os.getpid(),
            snapshot_version=version,
            draining=self.is_draining,
            groups={} if self.is_draining else self._instance_counts(),
            process_version=self.identity.process_version,
        )
        self.brokers = await self._registry.beat(beat)
        self.beaten_version = version
        self._beaten_at = clock.now()

    def _instance_counts(self) -> dict[int, int]:
        return {group_id: len(group.instances) for group_id, group in self._hub.groups.items() if group.instances}

    async def _wanted_lanes(self) -> LanesByGroup:
        """Return the lanes that this broker should own."""
        if self.is_draining:
            return {}
        is_registry_trusted = clock.now() - self._beaten_at <= self.config.registry_trusted_seconds
        # Without it nobody knows who is alive: let the leases decide.
        return await self._wanted.among(self.other_brokers() if is_registry_trusted else ())

    # --- taking and leaving -----------------------------------------------------------------------------------------

    async def _claim_missing(self, wanted: LanesByGroup) -> None:
        missing = [
            _lane_to_claim(group.route, topics[queue_id].topic_id, queue_id)
            for group, topics in wanted.items()
            for queue_id in topics.keys() - group.slots.keys()
        ]
        if not missing:
            return
        started_at = clock.now()
        async with self._store.connection() as connection:
            claimed = await claim(connection, self.identity.broker_id, missing, self.config.lease_seconds)
            claimed = await within_log(connection, self.identity.broker_id, claimed, self._hub)
            redeliveries = await load_redeliveries(connection, [lane.key for lane in claimed]) if claimed else {}
        if not claimed:
            return
        await self._hub.cache.refresh_ends([lane.key.queue_id for lane in claimed])
        lease_until = started_at + self.config.lease_seconds - self.config.lease_margin_seconds
        too_late: list[OwnedLane] = []
        for lane in claimed:
            group = self._hub.groups.get(lane.key.group_id)
            if group is not None and group in wanted:
                topic = wanted[group][lane.key.queue_id]
                self._hub.open_lane(group, topic, lane, redeliveries.get(lane.key, ()), lease_until)
            else:
                # Its last instance went away meanwhile, and the group with it.
                too_late.append(OwnedLane(lane.key, lane.epoch))
        if too_late:
            async with self._store.connection() as connection:
                await release(connection, self.identity.broker_id, too_late)
        log.info("cluster.lanes_claimed", count=len(claimed) - len(too_late))

    async def _leave_unwanted(self, wanted: LanesByGroup) -> None:
        now = clock.now()
        for group in self._hub.groups.values():
            for queue_id in group.slots.keys() - wanted.get(group, _NO_QUEUES).keys():
                slot = group.slots[queue_id]
                if slot.leaves_at is None:
                    slot.lane.stop()
                    # It may have nothing to persist but what stopping it gave rows to.
                    self._hub.touched(slot)
                    slot.leaves_at = now + self.config.drain_seconds
                    self._leaving.append(slot)
        self._leaving = [slot for slot in self._leaving if self._is_here(slot)]
        ready = [slot for slot in self._leaving if slot.lane.is_drained or now >= (slot.leaves_at or now)]
        if ready:
            await self._checkpointer.flush_once()
            await self._release(ready)

    def _is_here(self, slot: LaneSlot) -> bool:
        group = self._hub.groups.get(slot.lane.key.group_id)
        return group is not None and group.slots.get(slot.lane.key.queue_id) is slot

    async def _release(self, slots: Sequence[LaneSlot]) -> None:
        """Give up lanes whose last checkpoint is done."""
        lanes = [OwnedLane(slot.lane.key, slot.lane.epoch) for slot in slots]
        for slot in slots:
            group = self._hub.groups.get(slot.lane.key.group_id)
            if group is not None:
                self._hub.close_lane(group, slot.lane.key.queue_id)
        if lanes:
            async with self._store.connection() as connection:
                await release(connection, self.identity.broker_id, lanes)
            log.info("cluster.lanes_released", count=len(lanes))

    async def _renew_leases(self) -> None:
        now = clock.now()
        if now - self._renewed_at < self.config.lease_seconds / 4:
            return
        slots = [slot for group in self._hub.groups.values() for slot in group.slots.values()]
        held_up: set[LaneKey] = set()
        if slots:
            lanes = [OwnedLane(slot.lane.key, slot.lane.epoch) for slot in slots]
            async with self._store.connection() as connection:
                lost, held_up = await renew(connection, self.identity.broker_id, lanes, self.config.lease_seconds)
            answered_at = clock.now()
            lease_until = now + self.config.lease_seconds - self.config.lease_margin_seconds
            for slot in slots:
                # A lease that has passed is over, whatever the table says: what the lane had was dropped already.
                if answered_at >= slot.lease_until or slot.lane.key in lost:
                    self._lose(slot)
                elif slot.lane.key not in held_up:
                    slot.lease_until = lease_until
        if held_up:
            # With the next step, not in a quarter of the lease.
            log.warning("cluster.renewal_held_up", lanes=len(held_up))
        else:
            self._renewed_at = now

    def _lose(self, slot: LaneSlot) -> None:
        if self._is_here(slot):
            log.warning("cluster.lane_lost", lane=slot.lane.key)
            self._hub.close_lane(self._hub.groups[slot.lane.key.group_id], slot.lane.key.queue_id)

    # --- instances in the wrong place -------------------------------------------------------------------------------

    def _relocate_idle_instances(self, wanted: LanesByGroup) -> None:
        """Tell instances whose broker has none of their group's lanes where these are."""
        now = clock.now()
        others = [broker for broker in self.other_brokers() if not broker.draining]
        for group_id, group in self._hub.groups.items():
            has_lanes = wanted.get(group) or group.slots or not group.route.subscriptions
            addresses = [] if has_lanes else [broker.address for broker in others if group_id in broker.groups]
            if not group.instances or not addresses:
                self._without_lanes_since.pop(group_id, None)
                continue
            since = self._without_lanes_since.setdefault(group_id, now)
            if now - since >= self.config.relocate_after_seconds:
                del self._without_lanes_since[group_id]
                relocation = subscriber_pb2.Relocation(addresses=addresses)
                for instance in group.instances.values():
                    instance.notice(subscriber_pb2.SubscribeResponse(relocation=relocation))


def _lane_to_claim(route: GroupRoute, topic_id: int, queue_id: int) -> LaneToClaim:
    """Return what to claim. A new cursor starts where the earliest of the group's subscriptions to the topic does."""
    initial_offset = min(
        (s.start_offsets.get(queue_id, 0) for s in route.subscriptions if s.topic_id == topic_id),
        default=0,
    )
    return LaneToClaim(route.group_id, "", queue_id, initial_offset)
