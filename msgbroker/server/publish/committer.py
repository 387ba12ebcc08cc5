"""The committer: the one place where a broker's messages are stored.

Frames that arrive while a transaction is in flight join the next one. It fires when it is idle and has something, never
on a timer; one transaction is in flight. Where a whole batch waits already, it is made ready to follow at once, and the
store is busy while the last one is answered. After the commit the publishers are answered first, then the log cache and
through it the lanes are told: nothing is handed out before it is committed.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from confdb.routes import TopicRoute
from msgbroker.contract.errors import (
    BrokerBusyError,
    BrokerUnavailableError,
    QueueHeldError,
    StoreUnavailableError,
    TopicSetAsideError,
)
from msgbroker.server.alarms.set_aside import SetAside
from msgbroker.server.log.message import LogMessage
from msgbroker.server.log.topic_queues import TopicQueues
from msgbroker.server.publish.batches import BatchBounds, BatchQueues, PendingFrame, WaitingFrames
from msgbroker.server.publish.byte_budget import ByteBudget, Hold
from msgbroker.server.publish.queue_choice import QueueChoice, routes_of
from msgbroker.server.publish.stamping import stamped_by_queue
from msgdb.append.appender import Appender, LayoutChangedError, NotTriedError
from msgdb.append.outcome import FrameOutcome
from msgdb.append.plan import AppendFrame, FrameResult, Held, Stored
from msgdb.postgres.failures import RowsHeldError

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CommitterConfig:
    """How much the committer lets wait and puts into one transaction."""

    waiting_bytes_max: int = 32 * 1024 * 1024
    """How many bytes may wait in memory. Above it, streams are not read and unary calls are refused."""
    batch: BatchBounds = field(default_factory=BatchBounds)
    held_seconds_max: float = 5.0
    """How long a frame waits for a queue that another broker holds."""
    held_pause_seconds: float = 0.1
    retry_after_seconds: float = 0.5
    """The hint that goes with a refusal for too much waiting."""
    first_turn: int = 0
    """Where messages without a key begin their way around a topic's queues: brokers that begin at different ones seldom
    wait for each other's locks."""


@dataclass(slots=True)
class CommitterCounters:
    """What the committer has done since the start."""

    commits: int = 0
    frames: int = 0
    messages: int = 0
    failures: int = 0
    unknown: int = 0
    """Transactions of which nobody knows whether they were committed."""


@dataclass(slots=True)
class _Transaction:
    """A batch whose transaction is under way, or comes next."""

    batch: list[PendingFrame]
    around_held: bool
    results: asyncio.Task[list[FrameResult]]
    started_at: float
    is_former: bool = False
    """It began in a former history of the store: whether it is in this one nobody knows."""


class Committer:
    """Stores frames in the order they were submitted."""

    def __init__(
        self,
        appender: Appender,
        queues: TopicQueues,
        *,
        on_stored: Callable[[Mapping[int, list[LogMessage]]], None],
        on_stored_before: Callable[[FrameOutcome], None],
        topics_aside: SetAside[int],
        trace_threshold: Callable[[], int] = lambda: 0,
        config: CommitterConfig | None = None,
    ) -> None:
        self._trace_threshold = trace_threshold
        self._topics_aside = topics_aside
        self._went_around = False
        self._appender = appender
        self._queues = queues
        self._on_stored = on_stored
        self._on_stored_before = on_stored_before
        self._config = config or CommitterConfig()
        self.budget = ByteBudget(self._config.waiting_bytes_max)
        """For what is on its way into the log: held by whoever submits, and from then on until the answer."""
        self._waiting = WaitingFrames(self._config.batch)
        self._transactions: deque[_Transaction] = deque()
        self._choice = QueueChoice(queues, topics_aside, first_turn=self._config.first_turn)
        self._wake = asyncio.Event()
        self._is_closing = False
        self.counters = CommitterCounters()

    # --- submitting -------------------------------------------------------------------------------------------------

    def submit(self, frame: AppendFrame, hold: Hold) -> asyncio.Future[FrameResult]:
        """Queue *frame* and return the future of its result; what *hold* has is moved, and released by the answer.

        The future raises StoreUnavailableError, QueueHeldError or BrokerUnavailableError.
        """
        answer: asyncio.Future[FrameResult] = asyncio.get_running_loop().create_future()
        if self._is_closing:
            hold.release()
            answer.set_exception(BrokerUnavailableError("this broker is stopping"))
            return answer
        aside = self._topics_aside
        # Another try of what failed must not take a whole batch along.
        is_alone = bool(aside.units) and any(aside.is_set_aside(route.topic_id) for route in routes_of(frame))
        self._waiting.add(PendingFrame(frame, hold.moved(), answer, is_alone=is_alone))
        if self._may_start:
            self._wake.set()
        return answer

    def check_room(self) -> None:
        """Raise BrokerBusyError when there is no room: what slows unary callers down. Streams wait for it instead."""
        budget = self.budget
        if budget.is_full:
            raise BrokerBusyError(budget.bytes_held, budget.bytes_max, self._config.retry_after_seconds)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        return self.budget.bytes_held == 0 and not self._waiting

    def forget_log(self) -> None:
        """Believe nothing that is under way: the store goes on with another history.

        Where it was committed last it may be lost. Publishers ask again, and what this history has is found.
        """
        for transaction in self._transactions:
            transaction.is_former = True

    @property
    def in_flight_seconds(self) -> float:
        """How long the transaction that is under way has taken so far."""
        return time.monotonic() - self._transactions[0].started_at if self._transactions else 0.0

    # --- committing -------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Commit what is submitted until *stop* is set and nothing waits."""
        stopping = asyncio.ensure_future(stop.wait())
        stopping.add_done_callback(self._wake_up)
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._go_on()
                if stop.is_set() and not self._transactions:
                    self._is_closing = True
                    return
        finally:
            stopping.cancel()
            for transaction in self._transactions:
                transaction.results.cancel()
            await self._appender.close()

    def _wake_up(self, _: asyncio.Future[Any]) -> None:
        self._wake.set()

    @property
    def _may_start(self) -> bool:
        """Whether what waits may go to the appender: nothing is in flight, or a whole batch can follow at once."""
        transactions = self._transactions
        if not self._waiting or not transactions:
            return bool(self._waiting)
        return len(transactions) == 1 and self._waiting.make_full_batch and not transactions[0].around_held

    async def _go_on(self) -> None:
        """Start what may start, and see to what has ended."""
        while True:
            if self._transactions and self._transactions[0].results.done():
                await self._land()
            elif self._may_start:
                await self._start()
            else:
                return

    async def _start(self) -> None:
        batch = self._waiting.take_batch()
        around_held = self._goes_around_held(batch)
        try:
            batch = await self._routed(batch)
        except StoreUnavailableError as error:
            self._fail(batch, error)
            return
        if not batch:
            return
        frames = [pending.frame for pending in batch]
        storing = self._appender.append(
            frames,
            around_held=around_held,
            follows=bool(self._transactions),
            choose_again=partial(self._choose_again, frames),
        )
        results = asyncio.ensure_future(storing)
        results.add_done_callback(self._wake_up)
        self._transactions.append(_Transaction(batch, around_held, results, time.monotonic()))

    def _goes_around_held(self, batch: Sequence[PendingFrame]) -> bool:
        """Whether to store what is free and not to wait for the rest, because some of it was held a moment ago.

        Every other time it does wait: it stands in line then, and is next when a holder that was only slow has
        committed.
        """
        if not any(pending.held_since for pending in batch):
            self._went_around = False
            return False
        self._went_around = not self._went_around
        return self._went_around

    async def _land(self) -> None:
        """Answer the first batch in flight. What has to be tried again goes before what waits."""
        transaction = self._transactions.popleft()
        again = await self._see_to(transaction)
        all_again = len(again) == len(transaction.batch)
        if again and self._transactions:
            # It was not tried, or something of it might have overtaken what it follows.
            again += await self._see_to(self._transactions.popleft())
        self._waiting.put_back(again)
        if all_again and transaction.around_held:
            # Nothing could be stored around them: do not spin on the locks.
            await asyncio.sleep(self._config.held_pause_seconds)

    async def _see_to(self, transaction: _Transaction) -> list[PendingFrame]:
        """Answer the batch, and return the frames that must be tried again."""
        try:
            results = await transaction.results
        except StoreUnavailableError as error:
            self.counters.unknown += 1
            self._fail(transaction.batch, error)
            return []
        except NotTriedError:
            return transaction.batch
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - some frame's fault, or its topic's; the others are to be stored
            return await self._divide(transaction.batch, error)
        if transaction.is_former:
            self.counters.unknown += 1
            self._fail(transaction.batch, StoreUnavailableError("it goes on with another history, which may lack this"))
            return []
        return self._complete(transaction.batch, results)

    async def _divide(self, batch: Sequence[PendingFrame], error: Exception) -> list[PendingFrame]:
        """Return the frames of a batch that failed for an unknown reason, to be stored each by itself.

        One that was by itself is the cause: those of its topics that cannot be stored are set aside.
        """
        if len(batch) > 1:
            log.error("committer.batch_failed", frames=len(batch), exc_info=error)
            for pending in batch:
                pending.is_alone = True
            return [*batch]
        (pending,) = batch
        routes = await self._broken_topics(pending.frame)
        for topic_id in routes:
            self._topics_aside.failed(topic_id, error)
        self.counters.failures += 1
        names = ", ".join(sorted(route.name for route in routes.values()))
        self._answer(pending, TopicSetAsideError(names, type(error).__name__))
        return []

    async def _broken_topics(self, frame: AppendFrame) -> dict[int, TopicRoute]:
        """Return the topics of a frame that cannot be stored: all of them, where nobody can tell."""
        in_frame = [*routes_of(frame)]
        routes = {route.topic_id: route for route in in_frame}
        if len(routes) == 1:
            return routes
        try:
            broken = await self._appender.find_broken(frame)
        except MemoryError:
            raise
        except Exception:
            log.warning("committer.broken_topics_not_found", exc_info=True)
            return routes
        return {in_frame[place].topic_id: in_frame[place] for place in broken} or routes

    def _fail(self, batch: Sequence[PendingFrame], error: StoreUnavailableError) -> None:
        self.counters.failures += 1
        log.warning("committer.store_unavailable", frames=len(batch))
        for pending in batch:
            self._answer(pending, error)

    async def _choose_again(self, frames: Sequence[AppendFrame], changed: LayoutChangedError) -> None:
        """Give the messages queues by the layouts that stand now: some of those they had were sealed."""
        log.info("committer.layout_changed", queue_ids=changed.queue_ids)
        await self._queues.load()
        self._choice.begin_batch()
        for frame in frames:
            await self._choice.choose(frame)

    async def _routed(self, batch: Sequence[PendingFrame]) -> list[PendingFrame]:
        """Give each message its queue, and return the frames that have all of theirs.

        Those of a topic whose queues cannot be had are answered: the others are none the worse for it. From the frame
        on that has more queues than a batch may, they are the next batch. Raises StoreUnavailableError.
        """
        self._choice.begin_batch()
        queues = BatchQueues(self._config.batch.queues_max)
        routed: list[PendingFrame] = []
        for place, pending in enumerate(batch):
            try:
                await self._choice.choose(pending.frame)
            except (TopicSetAsideError, RowsHeldError) as error:
                self.counters.failures += 1
                self._answer(pending, error)
            else:
                if not queues.have_room(pending.frame, self._choice.queues_at_most) and routed:
                    self._waiting.put_back(batch[place:])
                    break
                routed.append(pending)
        return routed

    def _complete(self, batch: Sequence[PendingFrame], results: Sequence[FrameResult]) -> list[PendingFrame]:
        """Answer the batch, tell the lanes, and return the frames that must be tried again."""
        held: list[PendingFrame] = []
        stored: list[tuple[PendingFrame, FrameOutcome]] = []
        now = time.monotonic()
        for pending, result in zip(batch, results, strict=True):
            if isinstance(result, Held):
                if result.queue_id:
                    self._choice.avoid(result.queue_id)
                pending.held_since = pending.held_since or now
                if now - pending.held_since < self._config.held_seconds_max:
                    held.append(pending)
                else:
                    self._answer(pending, QueueHeldError(result.queue_id))
                continue
            self._answer(pending, result)
            if isinstance(result, Stored):
                if result.duplicate:
                    self._on_stored_before(result.outcome)
                else:
                    stored.append((pending, result.outcome))
        if stored:
            self._hand_over(stored)
            if self._topics_aside.units:
                for pending, _ in stored:
                    for route in routes_of(pending.frame):
                        self._topics_aside.worked(route.topic_id)
        return held

    def _hand_over(self, stored: Sequence[tuple[PendingFrame, FrameOutcome]]) -> None:
        """Encode what was committed, and give it to the log cache by queue."""
        frames = ((pending.frame, outcome) for pending, outcome in stored)
        by_queue = stamped_by_queue(frames, self._trace_threshold())
        self.counters.commits += 1
        self.counters.frames += len(stored)
        self.counters.messages += sum(map(len, by_queue.values()))
        self._on_stored(by_queue)

    def _answer(self, pending: PendingFrame, result: FrameResult | Exception) -> None:
        pending.hold.release()
        if pending.answer.done():
            # Its stream has ended meanwhile.
            return
        if isinstance(result, Exception):
            pending.answer.set_exception(result)
        else:
            pending.answer.set_result(result)
