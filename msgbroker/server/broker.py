"""A running broker: its parts as far as its owner has to do with them, and how it ends in good order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog

from confdb.snapshot import SnapshotFeed
from msgbroker.contract.errors import ConfigUnavailableError, StoreUnavailableError
from msgbroker.server.alarms.board import AlarmBoard
from msgbroker.server.alarms.side_loops import Loop, SideLoops
from msgbroker.server.cluster.cluster import Cluster
from msgbroker.server.deliver.checkpoints import Checkpointer
from msgbroker.server.deliver.expressions.failures import FailureWriter
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.edge.grpc_door import GrpcDoor
from msgbroker.server.figures.figures import Figures
from msgbroker.server.jobs.runner import JobRunner
from msgbroker.server.publish.committer import Committer
from msgbroker.server.trace.writer import TraceWriter

log = structlog.get_logger(__name__)

# The end, after `drain_seconds`, takes so long at most, whatever the databases do. Each part leaves to those after it
# what they need: giving up the lanes, closing the front doors, ending the reads, cutting what hangs.
_END_SECONDS_MAX: Final = 4.0
_LEFT_AFTER_LOOPS: Final = 2.5
_LAST_LEAVE_SECONDS: Final = 0.5
"""Lanes that could not be persisted by then are given up as they are, and so long is left for that."""
_LEFT_AFTER_LEAVING: Final = 1.25
_LEFT_AFTER_DOORS: Final = 0.5
_LEFT_AFTER_READS: Final = 0.25
_CANCEL_SECONDS_MAX: Final = 0.25
_IDLE_POLL_SECONDS: Final = 0.02


class FrontDoor(Protocol):
    """A protocol by which clients reach a broker, as the broker has to do with it."""

    async def open(self) -> None:
        """Serve clients from now on."""

    def drain(self) -> None:
        """Say that this broker is about to stop, and send its clients to others; what they are at may be ended here."""

    @property
    def is_idle(self) -> bool:
        """Whether no client is at anything that it would lose."""

    async def close(self) -> None:
        """End all streams and calls; half a second is left for it."""


@dataclass(frozen=True, slots=True)
class BrokerLoop:
    """Something that runs beside the calls of clients, and what the broker is without it.

    Every loop ends by itself when it is told to stop, with its round. But a round may wait for a database that hangs,
    or for another process, and the broker has little time to end. So only those are waited for of which a round that
    is broken off would be missed; the others are cancelled wherever they are: what they were at is found again, by this
    broker's successors or by themselves.
    """

    name: str
    run: Loop
    finishes_its_round: bool = False
    """Its round is waited for: it may be storing, or taking or giving up lanes."""
    is_dispensable: bool = False
    """Storing and delivering can do without it for a while: where it fails that is an alarm, and it is started again.

    Any other loop ends the broker with itself."""


@dataclass(slots=True, eq=False)
class Broker:
    """A running broker: its parts, as far as its owner has to do with them."""

    address: str
    """host:port that clients reach it at."""
    drain_seconds: float
    """How long its end waits for clients to finish what they are at."""
    feed: SnapshotFeed
    hub: DeliveryHub
    committer: Committer
    checkpointer: Checkpointer
    cluster: Cluster
    grpc_door: GrpcDoor
    alarms: AlarmBoard
    failures: FailureWriter
    figures: Figures
    jobs: JobRunner
    trace: TraceWriter
    loops: Sequence[BrokerLoop]
    cut_connections: Callable[[], None]
    """Break every connection to the databases that is in use."""
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _running: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def _doors(self) -> Sequence[FrontDoor]:
        """The ways in. Whoever adds one names it here."""
        return (self.grpc_door,)

    async def start(self) -> None:
        """Join the cluster, and serve. Raises ConfigUnavailableError or StoreUnavailableError."""
        await self._join()
        await self.figures.begin()
        for door in self._doors:
            await door.open()
        side = SideLoops(self.alarms)
        for loop in self.loops:
            run = side.kept_running(loop.name, loop.run) if loop.is_dispensable else loop.run
            task = asyncio.ensure_future(run(self._stop))
            task.set_name(loop.name)
            self._running.append(task)

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
        while self.cluster.heartbeats.beaten_version != self.feed.current.version:
            try:
                await self.cluster.heartbeats.beat_once()
            except TimeoutError as error:
                raise ConfigUnavailableError("no answer from the registry of brokers") from error
            await self.feed.load_once()

    async def wait_until_failed(self) -> None:
        """Return never; raise what ended one of the loops: a broker does not live on with a part of it dead."""
        done, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        raise RuntimeError(f"a loop ended: {[task.get_name() for task in done]}")

    async def shut_down(self) -> None:
        """Stop accepting, let what is under way finish, persist, give up the leases, and end.

        Within `drain_seconds` and 4 s, whatever the databases do.
        """
        log.info("broker.draining")
        self.cluster.drain()
        for door in self._doors:
            door.drain()
        deadline = asyncio.get_running_loop().time() + self.drain_seconds + _END_SECONDS_MAX
        drained = await self._wait_until_idle(self.drain_seconds)
        self._stop.set()
        left = await self._end_loops(deadline - _LEFT_AFTER_LOOPS)
        # Before the streams end: what an instance has not settled by now goes to the next owner as it is, and does not
        # count as an attempt that failed.
        left += await self._leave(deadline - _LEFT_AFTER_LEAVING)
        closing = [asyncio.create_task(door.close(), name="front-door") for door in self._doors]
        # What lanes noted as they were given up is written, too.
        closing.append(asyncio.create_task(self.trace.leave(), name="leave-trace"))
        left += await _unfinished(closing, deadline - _LEFT_AFTER_DOORS)
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
            asyncio.create_task(self._leave_lanes(seconds_left - _LAST_LEAVE_SECONDS), name="leave-lanes"),
            asyncio.create_task(self.cluster.heartbeats.leave(), name="leave-registry"),
            asyncio.create_task(self.alarms.leave(), name="leave-alarms"),
            asyncio.create_task(self.failures.leave(), name="leave-failures"),
            asyncio.create_task(self.jobs.leave(), name="leave-jobs"),
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

    async def _leave_lanes(self, seconds: float) -> None:
        """Give up the lanes, and then write what was counted: nobody's verdict counts from then on."""
        await self.cluster.ownership.leave(seconds)
        await self.figures.leave()

    async def _end_loops(self, deadline: float) -> list[asyncio.Task[None]]:
        """End what runs beside the calls, and return what does not end."""
        finishing: list[asyncio.Task[None]] = []
        # There are none where the broker could not start.
        for loop, task in zip(self.loops, self._running, strict=False):
            if loop.finishes_its_round:
                finishing.append(task)
            else:
                task.cancel()
        for task in await _unfinished(finishing, deadline):
            task.cancel()
        # What ended one of them is told by `wait_until_failed`.
        return await _unfinished(self._running, deadline + _CANCEL_SECONDS_MAX)

    async def _wait_until_idle(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.committer.is_idle and all(door.is_idle for door in self._doors):
                return True
            await asyncio.sleep(_IDLE_POLL_SECONDS)
        return False


async def _unfinished(tasks: Sequence[asyncio.Task[None]], deadline: float) -> list[asyncio.Task[None]]:
    """Wait until *deadline* (by the loop's clock) at most; return those of *tasks* that have not ended."""
    if not tasks:
        return []
    _, unfinished = await asyncio.wait(tasks, timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
    return [*unfinished]
