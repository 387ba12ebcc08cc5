"""A running broker: its parts as far as its owner has to do with them, and how it ends in good order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import grpc
import structlog

from confdb.snapshot import SnapshotFeed
from msgbroker.contract.errors import ConfigUnavailableError, StoreUnavailableError
from msgbroker.server.alarms.board import AlarmBoard
from msgbroker.server.cluster.cluster import Cluster
from msgbroker.server.deliver.checkpoints import Checkpointer
from msgbroker.server.deliver.expressions.failures import FailureWriter
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.edge.health import HealthWatch
from msgbroker.server.edge.publisher_service import PublisherService
from msgbroker.server.edge.pull_service import PullService
from msgbroker.server.edge.subscriber_service import SubscriberService
from msgbroker.server.publish.committer import Committer
from msgbroker.server.settings import BrokerSettings

log = structlog.get_logger(__name__)

Loop = Callable[[asyncio.Event], Awaitable[None]]

# The end, after `drain_seconds`, takes so long at most, whatever the databases do. Each part leaves to those after it
# what they need: giving up the lanes, ending the streams, ending the reads, cutting what hangs.
_END_SECONDS_MAX: Final = 4.0
_LEFT_AFTER_LOOPS: Final = 2.5
_LAST_LEAVE_SECONDS: Final = 0.5
"""For giving up as they are the lanes that could not be persisted by then."""
_LEFT_AFTER_LEAVING: Final = 1.25
_LEFT_AFTER_SERVER: Final = 0.5
_LEFT_AFTER_READS: Final = 0.25
_CANCEL_SECONDS_MAX: Final = 0.25
_SERVER_GRACE_SECONDS: Final = 0.5
_IDLE_POLL_SECONDS: Final = 0.02
_FINISH_THEIR_ROUND: Final = frozenset({"cluster", "beats", "checkpoints"})


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
    alarms: AlarmBoard
    failures: FailureWriter
    server: grpc.aio.Server
    loops: Mapping[str, Loop]
    """What runs beside the calls, by name."""
    cut_connections: Callable[[], None]
    """Break every connection to the databases that is in use."""
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _running: list[asyncio.Task[None]] = field(default_factory=list)
    _committing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Join the cluster, and serve. Raises ConfigUnavailableError or StoreUnavailableError."""
        await self._join()
        await self.server.start()
        await self.health.check_once()
        self._committing = asyncio.create_task(self.committer.run(self._stop), name="committer")
        self._running = [asyncio.ensure_future(run(self._stop)) for run in self.loops.values()]
        for name, task in zip(self.loops, self._running, strict=True):
            task.set_name(name)

    async def _join(self) -> None:
        """Enter the registry, with a configuration that is current then.

        Whoever waits for a change to be active waits for the brokers in the registry. A change from before this one was
        in it must be known before anything is served; one from after it waits for this broker, too.
        """
        try:
            # Before confdb is looked at: what is reported active later is told from it, should confdb go away at once.
            await self.cluster.cut_off.look_once()
        except TimeoutError as error:
            raise StoreUnavailableError("no answer from the message store") from error
        while self.cluster.beaten_version != self.feed.current.version:
            try:
                await self.cluster.beat_once()
            except TimeoutError as error:
                raise ConfigUnavailableError("no answer from the registry of brokers") from error
            await self.feed.load_once()

    async def wait_until_failed(self) -> None:
        """Return never; raise what ended one of the loops: a broker does not live on with a part of it dead."""
        assert self._committing is not None
        done, _ = await asyncio.wait([*self._running, self._committing], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        raise RuntimeError(f"a loop ended: {[task.get_name() for task in done]}")

    async def shut_down(self) -> None:
        """Stop accepting, let what is under way finish, persist, give up the leases, and end.

        Within `drain_seconds` and 4 s, whatever the databases do.
        """
        log.info("broker.draining")
        await self.health.leave()
        self.cluster.is_draining = True
        self.cluster.wake.set()
        for service in (self.publisher, self.subscriber, self.pull):
            service.drain()
        deadline = asyncio.get_running_loop().time() + self.settings.drain_seconds + _END_SECONDS_MAX
        drained = await self._wait_until_idle(self.settings.drain_seconds)
        self._stop.set()
        left = await self._end_loops(deadline - _LEFT_AFTER_LOOPS)
        # Before the streams end: what an instance has not settled by now goes to the next owner as it is, and does not
        # count as an attempt that failed.
        left += await self._leave(deadline - _LEFT_AFTER_LEAVING)
        stopping = asyncio.create_task(self.server.stop(_SERVER_GRACE_SECONDS), name="server")
        left += await _unfinished([stopping], deadline - _LEFT_AFTER_SERVER)
        left += await _unfinished(self.hub.tasks.cancel_all(), deadline - _LEFT_AFTER_READS)
        if left:
            # Cancelling them alone would ask the databases for something once more, and wait for it.
            self.cut_connections()
            for task in left:
                task.cancel()
            left = await _unfinished(left, deadline)
        log.info("broker.stopped", drained=drained, left=[task.get_name() for task in left])

    async def _leave(self, deadline: float) -> list[asyncio.Task[None]]:
        """Say goodbye to both databases at once; return what was not answered in time."""
        seconds_left = deadline - asyncio.get_running_loop().time()
        goodbyes = [
            asyncio.create_task(self.cluster.leave_lanes(seconds_left - _LAST_LEAVE_SECONDS), name="leave-lanes"),
            asyncio.create_task(self.cluster.leave_registry(), name="leave-registry"),
            asyncio.create_task(self.alarms.leave(), name="leave-alarms"),
            asyncio.create_task(self.failures.leave(), name="leave-failures"),
        ]
        left = await _unfinished(goodbyes, deadline)
        for goodbye in goodbyes:
            try:
                if goodbye not in left:
                    goodbye.result()
            except Exception:
                # Whatever it is, the others are said, and what comes after them is done. What was not persisted comes
                # again from the next owner, when the leases have passed.
                log.warning("broker.left_without_goodbye", goodbye=goodbye.get_name(), exc_info=True)
        return left

    async def _end_loops(self, deadline: float) -> list[asyncio.Task[None]]:
        """End what runs beside the calls, and return what does not end.

        Whoever may be taking or giving up lanes finishes its round first.
        """
        self.cluster.wake_all()
        finishing = [] if self._committing is None else [self._committing]
        for name, task in zip(self.loops, self._running, strict=False):
            if name in _FINISH_THEIR_ROUND:
                finishing.append(task)
            else:
                task.cancel()
        for task in await _unfinished(finishing, deadline):
            task.cancel()
        # What ended one of them is told by `wait_until_failed`.
        return await _unfinished([*self._running, *finishing], deadline + _CANCEL_SECONDS_MAX)

    async def _wait_until_idle(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        parts = (self.publisher, self.subscriber, self.pull, self.committer)
        while time.monotonic() < deadline:
            if all(part.is_idle for part in parts):
                return True
            await asyncio.sleep(_IDLE_POLL_SECONDS)
        return False


async def _unfinished(tasks: Sequence[asyncio.Task[None]], deadline: float) -> list[asyncio.Task[None]]:
    """Wait until *deadline* (by the loop's clock) at most; return those of *tasks* that have not ended."""
    if not tasks:
        return []
    _, unfinished = await asyncio.wait(tasks, timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
    return [*unfinished]
