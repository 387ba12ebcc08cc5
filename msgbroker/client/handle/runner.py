"""Runs one handler over the messages that wait for it. Shared by the real client and the in-memory center.

No task per message: workers, at most `concurrency` of them, are started when there is work for one more, take
messages from one deque, and await the handler. A handler that never suspends keeps a single worker busy; that worker
lets the loop turn every so often. A worker of a handler that is not async has a thread before it takes a message.

What a handler is at is kept for it as long as it takes, and it is stopped where that cannot be (`works`). How it is
called, and what that says of its message, is of `calls`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from msgbroker.client.connect.background import OnFailure
from msgbroker.client.handle.calls import HandlerCalls
from msgbroker.client.handle.ending import Ending, is_cancelled
from msgbroker.client.handle.handed import HandedMessage
from msgbroker.client.handle.handlers import Handler
from msgbroker.client.handle.threads import HandlerThreads
from msgbroker.client.handle.turns import Turns
from msgbroker.client.handle.works import Work, Works
from msgbroker.client.values.log_lines import log_line
from msgbroker.client.values.verdicts import RELEASED_AT_ONCE, verdict_of

TURN_MESSAGES: Final = 64
"""After how many messages without a pause a worker lets the event loop turn."""
ENDING_SECONDS: Final = 1.0
"""How long handlers that are cancelled may take to end."""


class HandlerRunner:
    """The workers of one handler, and what waits for them."""

    def __init__(self, handler: Handler, threads: HandlerThreads, ending: Ending, on_failure: OnFailure) -> None:
        self.handler = handler
        self._loop = asyncio.get_running_loop()
        self._ending = ending
        self._threads = None if handler.is_async else threads
        self._workers_max = handler.concurrency if handler.is_async else min(handler.concurrency, threads.count_max)
        self._turns: Turns | None = None
        self._are_turns_needed = False
        """Whether workers look for a turn: it may be set where none is needed any more, never the other way round."""
        self._suspect_count = 0
        """How many of the first messages that wait are suspect."""
        self._on_failure = on_failure
        self._waiting: deque[HandedMessage] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self.works = Works(handler, self._loop)
        self._busy_count = 0
        """How many workers do not wait for work."""
        self._idle: list[asyncio.Future[None]] = []
        self._is_calling = False
        self._died_at_work = False
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self._calls = HandlerCalls(handler, self._threads, ending, on_failure)

    @property
    def is_at_rest(self) -> bool:
        """Whether no message waits for the handler and no call of it runs."""
        return self._at_rest.is_set()

    def is_handling(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether the handler runs in that task."""
        return task in self._workers

    @property
    def has_waiting(self) -> bool:
        """Whether messages wait to be begun."""
        return bool(self._waiting)

    @property
    def running_count(self) -> int:
        """How many messages the handler is at."""
        return sum(work.message is not None for work in self.works)

    def feed(self, messages: Sequence[HandedMessage], *, are_suspect: bool = False) -> None:
        """Take messages to be handled; suspect ones before the others, and one at a time."""
        waiting = self._waiting
        now = self._loop.time()
        if self.works.are_lost:
            messages = self.works.go_on(messages)
        while waiting and not waiting[0].is_live(now):
            # Nobody may have looked at them for long: a handler that hangs must not fill this process's memory.
            self._next_waiting()
        if are_suspect and self._turns is not None:
            waiting.extendleft(reversed(messages))
            self._suspect_count += len(messages)
            self._are_turns_needed = True
        else:
            waiting.extend(messages)
        if waiting:
            self._at_rest.clear()
            self._call_worker()

    def take_turns(self, turns: Turns | None) -> None:
        """Let the workers take these turns from now on, where turns are needed; None: no more."""
        self._turns = turns
        self._are_turns_needed = turns is not None and turns.are_for_all

    def _next_waiting(self) -> HandedMessage:
        if self._suspect_count:
            self._suspect_count -= 1
        return self._waiting.popleft()

    def release_waiting(self) -> None:
        """Give back, without counting the attempt, what was not started."""
        while self._waiting:
            message = self._next_waiting()
            message.settle(RELEASED_AT_ONCE)
        self._rest_if_done()

    def drop_waiting(self) -> None:
        """Forget what was not started: its stream has ended."""
        self._waiting.clear()
        self._suspect_count = 0
        self._rest_if_done()

    async def join(self) -> None:
        """Wait until nothing waits and nothing runs."""
        await self._at_rest.wait()

    async def cancel(self) -> None:
        """Stop the workers, which are told to end; what they handle is given back, however their handlers take it."""
        self.release_waiting()
        for work in self.works:
            if work.message is not None:
                work.message.give_back()
        workers = list(self._workers)
        for worker in workers:
            worker.cancel()
        if workers:
            _, resisting = await asyncio.wait(workers, timeout=ENDING_SECONDS)
            if resisting:
                log_line(logging.WARNING, "handler.not_ended", group=self.handler.group, count=len(resisting))

    def _call_worker(self) -> None:
        """See that one more worker looks for work, if one may; it calls the next."""
        if self._is_calling:
            return
        if self._idle:
            self._is_calling = True
            self._idle.pop().set_result(None)
        elif len(self._workers) < self._workers_max:
            self._is_calling = True
            worker = self._loop.create_task(self._work(), name=f"handler {self.handler.group}")
            self._workers.add(worker)
            worker.add_done_callback(self._ended)

    def _ended(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        self._is_calling = False
        is_replaced = worker.cancelled() or self._died_at_work
        self._died_at_work = False
        error = None if worker.cancelled() else worker.exception()
        if isinstance(error, Exception):
            self._on_failure(f"a worker of the handler of group {self.handler.group}", error)
        # Not one that failed without a message: the mistake may be in waiting for one.
        if is_replaced and self._waiting and not self._ending.is_told:
            self._call_worker()

    async def _work(self) -> None:
        worker = asyncio.current_task()
        assert worker is not None  # it is one
        work = Work(worker)
        self.works.add(work)
        self._busy_count += 1
        self._is_calling = False
        try:
            await self._work_on(work)
        except Exception as failure:
            # A mistake of ours. Its message must not stay unsettled for it.
            if work.message is not None:
                with contextlib.suppress(Exception):
                    work.message.settle(verdict_of(failure))
                self._died_at_work = True
            raise
        finally:
            self.works.remove(work)
            self._give_thread_back(work)
            self._busy_count -= 1
            self._rest_if_done()

    async def _work_on(self, work: Work) -> None:
        waiting = self._waiting
        needs_thread = self._threads is not None
        turn = 0
        while True:
            if not waiting:
                if self._ending.is_told:
                    return
                turn = 0
                self._give_thread_back(work)
                await self._idle_until_woken()
                continue
            if needs_thread and not work.has_thread:
                await self._take_thread(work)
                continue
            if self._are_turns_needed:
                await self._take_turn(work)
                continue
            message = waiting.popleft()
            if waiting and not self._is_calling:
                self._call_worker()
            now = self._loop.time()
            if not message.is_live(now):
                continue
            work.since = now
            work.message = message
            await self._calls.handle(work, message)
            work.message = None
            turn += 1
            if turn >= TURN_MESSAGES or work.worker.cancelling():
                turn = 0
                await self._ending.pause()

    async def _take_turn(self, work: Work) -> None:
        """Begin with a message once it is known that we do, and once it is known what became of the one before."""
        turns = self._turns
        assert turns is not None  # or none are needed
        turn = await turns.take()
        if turn is None:
            # The session is over: others may be needed by now.
            return
        if self._suspect_count or turns.are_for_all:
            await self._begin_known(work, turns, turn)
        else:
            self._are_turns_needed = False
            turns.give(turn)

    async def _begin_known(self, work: Work, turns: Turns, turn: int) -> None:
        try:
            if self._waiting:
                message = self._next_waiting()
                if self._waiting and not self._is_calling:
                    self._call_worker()
                if message.is_live(self._loop.time()):
                    await self._handle_known(work, message, turns)
        finally:
            turns.give(turn)

    async def _handle_known(self, work: Work, message: HandedMessage, turns: Turns) -> None:
        work.since = self._loop.time()
        work.message = work.said = message
        message.begin()
        try:
            # The verdict on the one before goes with it.
            await turns.confirmed()
        except asyncio.CancelledError:
            message.settle(RELEASED_AT_ONCE)
            raise
        if message.is_live(self._loop.time()):
            await self._calls.handle(work, message)
        work.message = None
        if work.worker.cancelling():
            await self._ending.pause()

    async def _take_thread(self, work: Work) -> None:
        """Wait for a thread. Nothing was begun: who waits for what runs here does not wait for that."""
        assert self._threads is not None  # or none is needed
        self._busy_count -= 1
        self._rest_if_done()
        try:
            await self._threads.take()
            work.has_thread = True
        finally:
            self._busy_count += 1

    def _give_thread_back(self, work: Work) -> None:
        if work.has_thread and self._threads is not None:
            work.has_thread = False
            self._threads.give_back()

    async def _idle_until_woken(self) -> None:
        if is_cancelled():
            await self._ending.pause()
            return
        self._busy_count -= 1
        self._rest_if_done()
        woken = self._loop.create_future()
        self._idle.append(woken)
        try:
            await woken
        finally:
            self._busy_count += 1
            self._is_calling = False
            if woken in self._idle:
                self._idle.remove(woken)

    def _rest_if_done(self) -> None:
        if not self._waiting and self._busy_count == 0:
            self._at_rest.set()
