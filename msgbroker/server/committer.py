"""The committer: the one place where a broker's messages are stored.

Frames that arrive while a transaction is in flight join the next one. It fires when it is idle and has something, never
on a timer; one transaction is in flight. After the commit the publishers are answered first, then the log cache and
through it the lanes are told: nothing is handed out before it is committed.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from msgbroker.contract.errors import BrokerBusyError, BrokerUnavailableError, QueueHeldError, StoreUnavailableError
from msgbroker.engine.routing import UnkeyedSpreader, queue_for_key
from msgbroker.server.log_message import LogMessage
from msgbroker.server.queue_map import QueueMap
from msgbroker.server.room import Room
from msgbroker.server.wire import seal
from msgdb.append import Appender, LayoutChangedError
from msgdb.append_plan import AppendFrame, FrameResult, Held, Stored
from msgdb.outcome import FrameOutcome

log = structlog.get_logger(__name__)


_LAYOUT_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class CommitterConfig:
    """Bounds of the committer."""

    waiting_bytes_max: int = 32 * 1024 * 1024
    """In memory. Above it, streams are not read and unary calls are refused."""
    batch_messages_max: int = 4_000
    batch_bytes_max: int = 4 * 1024 * 1024
    """On the wire."""
    batch_publishers_max: int = 500
    """Each takes a lock for the length of the transaction; PostgreSQL's lock table is shared by all sessions."""
    held_seconds_max: float = 5.0
    """How long a frame waits for a queue that another broker holds."""
    held_pause_seconds: float = 0.1
    retry_after_seconds: float = 0.5
    """The hint that goes with a refusal for too much waiting."""
    first_turn: int = 0
    """Where messages without a key begin their way around a topic's queues: brokers that begin at different ones seldom
    wait for each other's locks."""


@dataclass(slots=True, eq=False)
class PendingFrame:
    """A frame on its way through the committer."""

    frame: AppendFrame
    size_bytes: int
    bytes_held: int
    answer: asyncio.Future[FrameResult]
    held_since: float = 0.0


@dataclass(slots=True)
class CommitterCounters:
    """What the committer has done since the start."""

    commits: int = 0
    frames: int = 0
    messages: int = 0
    failures: int = 0


class Committer:
    """Stores frames in the order they were submitted."""

    def __init__(
        self,
        appender: Appender,
        queues: QueueMap,
        on_stored: Callable[[Mapping[int, list[LogMessage]]], None],
        on_elsewhere: Callable[[FrameOutcome], None],
        config: CommitterConfig | None = None,
    ) -> None:
        self._appender = appender
        self._queues = queues
        self._on_stored = on_stored
        self._on_elsewhere = on_elsewhere
        self._config = config or CommitterConfig()
        self.room = Room(self._config.waiting_bytes_max)
        """For what is on its way into the log. Who submits holds it; the answer gives it back."""
        self._waiting: deque[PendingFrame] = deque()
        self._spreader = UnkeyedSpreader(self._config.first_turn)
        self._wake = asyncio.Event()
        self._closing = False
        self.counters = CommitterCounters()

    # --- submitting -------------------------------------------------------------------------------------------------

    def submit(self, frame: AppendFrame, size_bytes: int, bytes_held: int) -> asyncio.Future[FrameResult]:
        """Queue *frame* and return the future of its result; with that goes the room that is held for it.

        The future raises StoreUnavailableError, QueueHeldError or BrokerUnavailableError.
        """
        answer: asyncio.Future[FrameResult] = asyncio.get_running_loop().create_future()
        if self._closing:
            self.room.release(bytes_held)
            answer.set_exception(BrokerUnavailableError("this broker is stopping"))
            return answer
        self._waiting.append(PendingFrame(frame, size_bytes, bytes_held, answer))
        self._wake.set()
        return answer

    def check_room(self) -> None:
        """Raise BrokerBusyError when there is no room: what slows unary callers down. Streams wait for it instead."""
        if self.room.is_full:
            raise BrokerBusyError(self.room.bytes_held, self.room.bytes_max, self._config.retry_after_seconds)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        return self.room.bytes_held == 0 and not self._waiting

    # --- committing -------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Commit what is submitted until *stop* is set and nothing waits."""
        stopping = asyncio.ensure_future(stop.wait())
        stopping.add_done_callback(lambda _: self._wake.set())
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting:
                    await self.commit_once()
                if stop.is_set():
                    self._closing = True
                    return
        finally:
            stopping.cancel()
            await self._appender.close()

    async def commit_once(self) -> None:
        """Store one batch of what waits, and answer it."""
        batch = self._take_batch()
        around_held = any(pending.held_since for pending in batch)
        try:
            results = await self._append(batch, around_held=around_held)
        except StoreUnavailableError as error:
            self.counters.failures += 1
            log.warning("committer.store_unavailable", frames=len(batch))
            for pending in batch:
                self._answer(pending, error)
        else:
            held = self._complete(batch, results)
            if held:
                self._waiting.extendleft(reversed(held))
                self._wake.set()
                if len(held) == len(batch):
                    # Nothing could be stored around them: do not spin on the locks.
                    await asyncio.sleep(self._config.held_pause_seconds)

    def _take_batch(self) -> list[PendingFrame]:
        config = self._config
        waiting = self._waiting
        batch: list[PendingFrame] = []
        messages = batch_bytes = 0
        publishers: set[bytes] = set()
        while waiting:
            frame = waiting[0].frame
            messages += len(frame.messages)
            batch_bytes += waiting[0].size_bytes
            publishers.add(frame.publisher_id)
            if batch and (
                messages > config.batch_messages_max
                or batch_bytes > config.batch_bytes_max
                or len(publishers) > config.batch_publishers_max
            ):
                break
            batch.append(waiting.popleft())
        return batch

    async def _append(self, batch: Sequence[PendingFrame], *, around_held: bool) -> list[FrameResult]:
        frames = [pending.frame for pending in batch]
        for _ in range(_LAYOUT_TRIES):
            await self._choose_queues(frames)
            try:
                return await self._appender.append(frames, around_held=around_held)
            except LayoutChangedError as changed:
                log.info("committer.layout_changed", queue_ids=changed.queue_ids)
                await self._queues.load()
        raise StoreUnavailableError("the queues of these messages keep changing")

    async def _choose_queues(self, frames: Sequence[AppendFrame]) -> None:
        """Give each message its queue: by its ordering key, or any."""
        layouts: dict[int, tuple[int, ...]] = {}
        self._spreader.begin_batch()
        for frame in frames:
            for message in frame.messages:
                assert isinstance(message, LogMessage)
                route = message.route
                assert route is not None
                queue_ids = layouts.get(route.topic_id)
                if queue_ids is None:
                    layout = await self._queues.ensure(route)
                    queue_ids = layouts[route.topic_id] = layout.queue_ids
                if message.ordering_key:
                    message.queue_id = queue_ids[queue_for_key(message.ordering_key, len(queue_ids))]
                else:
                    message.queue_id = self._spreader.choose(route.topic_id, queue_ids)

    def _complete(self, batch: Sequence[PendingFrame], results: Sequence[FrameResult]) -> list[PendingFrame]:
        """Answer the batch, tell the lanes, and return the frames that must be tried again."""
        held: list[PendingFrame] = []
        stored: list[tuple[PendingFrame, FrameOutcome]] = []
        now = time.monotonic()
        for pending, result in zip(batch, results, strict=True):
            if isinstance(result, Held):
                if result.queue_id:
                    self._spreader.set_aside(result.queue_id)
                pending.held_since = pending.held_since or now
                if now - pending.held_since < self._config.held_seconds_max:
                    held.append(pending)
                else:
                    self._answer(pending, QueueHeldError(result.queue_id))
                continue
            self._answer(pending, result)
            if isinstance(result, Stored):
                if result.duplicate:
                    self._on_elsewhere(result.outcome)
                else:
                    stored.append((pending, result.outcome))
        if stored:
            self._hand_over(stored)
        return held

    def _hand_over(self, stored: Sequence[tuple[PendingFrame, FrameOutcome]]) -> None:
        """Encode what was committed, and give it to the log cache by queue."""
        by_queue: dict[int, list[LogMessage]] = {}
        for pending, outcome in stored:
            messages: Sequence[LogMessage] = pending.frame.messages  # type: ignore[assignment]
            first = int.from_bytes(outcome.first_message_id, "big")
            numbers = range(first, first + len(messages))
            if outcome.refusals:
                numbers = [first + i for i, queue_id in enumerate(outcome.queue_ids) if queue_id]  # type: ignore[assignment]
            seal(messages, [number.to_bytes(16, "big") for number in numbers], outcome.stored_at_us)
            for message in messages:
                in_queue = by_queue.get(message.queue_id)
                if in_queue is None:
                    by_queue[message.queue_id] = [message]
                else:
                    in_queue.append(message)
            self.counters.messages += len(messages)
        self.counters.commits += 1
        self.counters.frames += len(stored)
        self._on_stored(by_queue)

    def _answer(self, pending: PendingFrame, result: FrameResult | Exception) -> None:
        self.room.release(pending.bytes_held)
        if pending.answer.done():
            # Its stream has ended meanwhile.
            return
        if isinstance(result, Exception):
            pending.answer.set_exception(result)
        else:
            pending.answer.set_result(result)
