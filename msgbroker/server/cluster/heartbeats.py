"""Heartbeats: this broker tells the registry that it is alive, with what it serves, and hears who else is.

The registry is in confdb, and the leases of lanes are in msgdb. So beats have a loop of their own, and neither waits
for the other's database. A broker that cannot beat is taken for dead after a while; its lanes stay its own by their
leases all the same.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

import structlog

from confdb.brokers import BrokerBeat, BrokerRegistry, LiveBroker
from confdb.routes import Snapshot
from confdb.store import as_outage
from msgbroker.contract.errors import ConfigUnavailableError
from msgbroker.server import clock
from msgbroker.server.cluster.cut_off import CutOff
from msgbroker.server.cluster.misplaced_instances import MisplacedInstances
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.loops import PatientCall, woken

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class HeartbeatConfig:
    """How often a broker beats, and for how long it relies on what it heard."""

    beat_seconds: float = 0.5
    answer_seconds_max: float = 3.0
    """How long a beat may go unanswered before that is said."""
    trusted_seconds: float = 10.0
    """Who was alive at the last beat is taken to be so for as long."""


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """Who this broker is, as clients and other brokers know it."""

    broker_id: UUID
    address: str
    process_version: str
    features: frozenset[str] = frozenset()
    """Those of `confdb.features` that it understands."""


class Heartbeats:
    """Beats in the registry of brokers, and knows who else is alive."""

    def __init__(
        self,
        *,
        identity: BrokerIdentity,
        registry: BrokerRegistry,
        hub: DeliveryHub,
        snapshot: Callable[[], Snapshot],
        misplaced: MisplacedInstances,
        cut_off: CutOff,
        config: HeartbeatConfig | None = None,
    ) -> None:
        self.identity = identity
        self.brokers: Sequence[LiveBroker] = ()
        """The brokers that were live at the last beat, this one included."""
        self.beaten_version: int | None = None
        """The configuration that the registry says this broker obeys."""
        self.beaten_at = -math.inf
        """When the last beat was answered."""
        self.wake = asyncio.Event()
        """Set when the others are to hear of something before the next round."""
        self._registry = registry
        self._hub = hub
        self._snapshot = snapshot
        self._misplaced = misplaced
        self._cut_off = cut_off
        self._config = config or HeartbeatConfig()
        self._beat = PatientCall(self._beat_now, self._config.answer_seconds_max)
        self._is_draining = False

    async def run(self, stop: asyncio.Event) -> None:
        """Beat until *stop* is set."""
        while not stop.is_set():
            try:
                with as_outage():
                    await self.beat_once()
            except (ConfigUnavailableError, TimeoutError) as error:
                # The others see this broker as dead after a while; its lanes stay its own by their leases.
                log.warning("cluster.registry_unavailable", problem=str(error))
            await woken(stop, self.wake, self._config.beat_seconds)

    async def beat_once(self) -> None:
        """Say that this broker is alive, and hear who else is.

        Raises ConfigUnavailableError, or TimeoutError when there is no answer.
        """
        await self._beat()

    def drain(self) -> None:
        """Say from now on that this broker is about to stop, and serves no group."""
        self._is_draining = True
        self.wake.set()

    async def leave(self) -> None:
        """Strike this broker off the registry. Raises ConfigUnavailableError."""
        await self._registry.leave(self.identity.broker_id)

    def other_brokers(self) -> list[LiveBroker]:
        """Return the brokers that were alive at the last beat, but for this one."""
        return [broker for broker in self.brokers if broker.broker_id != self.identity.broker_id]

    def rivals(self) -> Sequence[LiveBroker]:
        """Return the other brokers that lanes are shared with: none where nobody was heard of for too long.

        Then nobody knows who is alive, and a broker wants all lanes of its groups; the leases decide who has which.
        """
        return self.other_brokers() if clock.now() - self.beaten_at <= self._config.trusted_seconds else ()

    def groups_at_others(self) -> set[int]:
        """Return the groups that have instances at other brokers."""
        return {group_id for broker in self.other_brokers() for group_id in broker.groups}

    async def _beat_now(self) -> None:
        snapshot = self._snapshot()
        # Whoever waits for it to be active relies on it that nothing leaves by an older one.
        version = self._hub.outgoing.obeyed_version(snapshot.version)
        asked_at = clock.now()
        beat = BrokerBeat(
            broker_id=self.identity.broker_id,
            address=self.identity.address,
            host=socket.gethostname(),
            pid=os.getpid(),
            snapshot_version=version,
            draining=self._is_draining,
            groups={} if self._is_draining else self._instance_counts(),
            process_version=self.identity.process_version,
            features=self.identity.features,
            withheld=self._misplaced.withheld_to_tell(snapshot),
        )
        self.brokers = await self._registry.beat(beat)
        self._cut_off.beaten(asked_at)
        self.beaten_version = version
        self.beaten_at = clock.now()

    def _instance_counts(self) -> dict[int, int]:
        return {group_id: len(group.instances) for group_id, group in self._hub.groups.items() if group.instances}
