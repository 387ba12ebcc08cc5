"""Runs one handler over the messages that wait for it. Shared by the real client and the in-memory center.

No task per message: workers, at most `concurrency` of them, are started when there is work for one more, take
messages from one deque, and await the handler. A handler that never suspends keeps a single worker busy; that worker
lets the loop turn every so often.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Any, Final

from msgbroker.client.handlers import Handler
from msgbroker.client.message import Message
from msgbroker.client.verdicts import RELEASED_AT_ONCE, HandlerVerdict, Verdict, VerdictKind, verdict_of

log = logging.getLogger("msgbroker.client")

TURN_MESSAGES: Final = 64
"""After so many messages without a pause a worker lets the loop turn."""


class HandlerRunner:
    """The workers of one handler, and what waits for them."""

    def __init__(self, handler: Handler, executor: Executor | None) -> None:
        self.handler = handler
        self.running_count = 0
        self._executor = executor
        self._waiting: deque[Message] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._idle: list[asyncio.Future[None]] = []
        self._is_waking = False
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self._loop = asyncio.get_running_loop()

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return self._at_rest.is_set()

    def feed(self, messages: Iterable[Message]) -> None:
        """Take messages to be handled."""
        self._waiting.extend(messages)
        if self._waiting:
            self._at_rest.clear()
            self._wake()

    def release_waiting(self) -> None:
        """Give back, without counting the attempt, what was not started."""
        while self._waiting:
            message = self._waiting.popleft()
            message.settle(RELEASED_AT_ONCE)
        self._rest_if_done()

    def drop_waiting(self) -> None:
        """Forget what was not started: its stream has ended."""
        self._waiting.clear()
        self._rest_if_done()

    async def join(self) -> None:
        """Wait until nothing waits and nothing runs."""
        await self._at_rest.wait()

    async def cancel(self) -> None:
        """Stop the workers; what they were handling is given back."""
        workers = list(self._workers)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def _wake(self) -> None:
        """See that one more worker looks for work, if one may; it wakes the next."""
        if self._is_waking:
            return
        if self._idle:
            self._is_waking = True
            self._idle.pop().set_result(None)
        elif len(self._workers) < self.handler.concurrency:
            self._is_waking = True
            worker = self._loop.create_task(self._work(), name=f"handler {self.handler.group}")
            self._workers.add(worker)
            worker.add_done_callback(self._ended)

    def _ended(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        self._is_waking = False
        if not worker.cancelled() and (error := worker.exception()) is not None:
            # SystemExit and the like, from a handler: not ours to swallow, and the loop has re-raised it already.
            log.error("handler.worker_ended", exc_info=error)

    async def _work(self) -> None:
        waiting = self._waiting
        turn = 0
        self._is_waking = False
        while True:
            if not waiting:
                turn = 0
                await self._idle_until_woken()
                continue
            message = waiting.popleft()
            if waiting and not self._is_waking:
                self._wake()
            if not message.is_live(self._loop.time()):
                continue
            self.running_count += 1
            try:
                await self._handle(message)
            finally:
                self.running_count -= 1
            turn += 1
            if turn >= TURN_MESSAGES:
                turn = 0
                await asyncio.sleep(0)

    async def _idle_until_woken(self) -> None:
        self._rest_if_done()
        woken = self._loop.create_future()
        self._idle.append(woken)
        try:
            await woken
        finally:
            self._is_waking = False
            if woken in self._idle:
                self._idle.remove(woken)

    def _rest_if_done(self) -> None:
        if not self._waiting and self.running_count == 0:
            self._at_rest.set()

    async def _handle(self, message: Message) -> None:
        try:
            outcome = await self._call(message)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                message.settle(RELEASED_AT_ONCE)
                raise
            # Something inside the handler was cancelled, not the worker: a failed attempt like any other.
            message.settle(Verdict(VerdictKind.RETRY, None, "CancelledError in the handler"))
        except HandlerVerdict as said:
            message.settle(verdict_of(said))
        except Exception as failure:
            # In the text, too: without a formatter of one's own that is all one sees.
            log.warning(
                "handler.failed: group=%s topic=%s event_code=%s message_id=%s attempt=%d",
                self.handler.group,
                message.topic,
                message.event_code,
                message.message_id,
                message.attempt,
                extra={"message_id": str(message.message_id)},
                exc_info=failure,
            )
            message.settle(verdict_of(failure))
        else:
            if outcome is None or not isinstance(outcome, HandlerVerdict):
                message.ack()
            else:
                message.settle(verdict_of(outcome))

    async def _call(self, message: Message) -> Any:
        handler = self.handler
        if handler.is_async:
            if handler.timeout_seconds is None:
                return await handler.invoke(message)
            async with asyncio.timeout(handler.timeout_seconds):
                return await handler.invoke(message)
        call = self._loop.run_in_executor(self._executor, handler.invoke, message)
        # A thread cannot be stopped: past its time the message is tried again while the old call may still run.
        async with asyncio.timeout(handler.timeout_seconds):
            return await call
