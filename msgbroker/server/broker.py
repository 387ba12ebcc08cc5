"""A running broker: its parts as far as its owner has to do with them, and how it ends in good order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import grpc
import structlog

from confdb.snapshot import SnapshotFeed
from msgbroker.contract.errors import ConfigUnavailableError, StoreUnavailableError
from msgbroker.server.checkpoints import Checkpointer
from msgbroker.server.cluster import Cluster
from msgbroker.server.committer import Committer
from msgbroker.server.delivery import DeliveryHub
from msgbroker.server.health_watch import HealthWatch
from msgbroker.server.publisher_service import PublisherService
from msgbroker.server.pull_service import PullService
from msgbroker.server.settings import BrokerSettings
from msgbroker.server.subscriber_service import SubscriberService

log = structlog.get_logger(__name__)

Loop = Callable[[asyncio.Event], Awaitable[None]]

_LEAVE_SECONDS_MAX: Final = 2.0
_SERVER_GRACE_SECONDS: Final = 0.5
_IDLE_POLL_SECONDS: Final = 0.02
_FINISH_THEIR_ROUND: Final = frozenset({"cluster", "checkpoints"})


@dataclass(slots=True, eq=False)
class Broker:
    """A running broker: its parts, as far as its owner has to do with them."""

    settings: BrokerSettings
    address: str
    """host:port that clients reach it at."""
    feed: SnapshotFeed
    hub: DeliveryHub
    committer: Committer
    checkpointer: Checkpointer
    cluster: Cluster
    publisher: PublisherService
    subscriber: SubscriberService
    pull: PullService
    health: HealthWatch
    server: grpc.aio.Server
    loops: Mapping[str, Loop]
    """What runs beside the calls, by name."""
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _running: list[asyncio.Task[None]] = field(default_factory=list)
    _committing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Join the cluster, and serve."""
        await self.cluster.step_once()
        await self.server.start()
        await self.health.check_once()
        self._committing = asyncio.create_task(self.committer.run(self._stop), name="committer")
        self._running = [asyncio.ensure_future(run(self._stop)) for run in self.loops.values()]
        for name, task in zip(self.loops, self._running, strict=True):
            task.set_name(name)

    async def wait_until_failed(self) -> None:
        """Return never; raise what ended one of the loops: a broker does not live on with a part of it dead."""
        assert self._committing is not None
        done, _ = await asyncio.wait([*self._running, self._committing], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        raise RuntimeError(f"a loop ended: {[task.get_name() for task in done]}")

    async def shut_down(self) -> None:
        """Stop accepting, let what is under way finish, persist, give up the leases, and end."""
        log.info("broker.draining")
        await self.health.leave()
        self.cluster.is_draining = True
        self.cluster.wake.set()
        for service in (self.publisher, self.subscriber, self.pull):
            service.drain()
        drained = await self._wait_until_idle(self.settings.drain_seconds)
        self._stop.set()
        await self._end_loops()
        try:
            # Before the streams end: what an instance has not settled by now goes to the next owner as it is, and does
            # not count as an attempt that failed.
            async with asyncio.timeout(_LEAVE_SECONDS_MAX):
                await self.cluster.leave()
        except (StoreUnavailableError, ConfigUnavailableError, TimeoutError):
            # What was not persisted comes again from the next owner, when the leases have passed.
            log.warning("broker.left_without_goodbye", exc_info=True)
        await self.server.stop(_SERVER_GRACE_SECONDS)
        await self.hub.close()
        log.info("broker.stopped", drained=drained)

    async def _end_loops(self) -> None:
        """End what runs beside the calls. Whoever may be taking or giving up lanes finishes its round first."""
        self.hub.persist.set()
        self.cluster.wake.set()
        finishing = [] if self._committing is None else [self._committing]
        for name, task in zip(self.loops, self._running, strict=False):
            if name in _FINISH_THEIR_ROUND:
                finishing.append(task)
            else:
                task.cancel()
        if finishing:
            await asyncio.wait(finishing, timeout=_LEAVE_SECONDS_MAX)
        for task in finishing:
            task.cancel()
        # What ended one of them is told by `wait_until_failed`.
        await asyncio.gather(*self._running, *finishing, return_exceptions=True)

    async def _wait_until_idle(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.publisher.is_idle and self.subscriber.is_idle and self.committer.is_idle:
                return True
            await asyncio.sleep(_IDLE_POLL_SECONDS)
        return False
