"""The threads that handlers of one group run in that are not async.

A message is begun when its thread is there, and not before: who has none waits without a message in hand, so that the
time of a handler, and what the broker is told of it, begin with its call. Threads are given in the order they were
asked for. Each group has its own: a thread cannot be stopped, and handlers that hang must not take those of others.

They are daemons for the same reason: one that hangs must not keep the process from ending once its center is closed.
Every method is for the loop; only `_serve` runs in the threads.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from msgbroker.client.connect.handler_thread import HandlerThread
from msgbroker.client.handle.outcomes import discard
from msgbroker.client.handle.waiters import Waiters

THREADS_MAX: Final = 64
"""How many threads the handlers of one group may have at most."""
_NAME: Final = "msgcenter-handler"


@dataclass(frozen=True, slots=True)
class _Call:
    """A function to call, and who waits for what it returns."""

    function: Callable[..., Any]
    argument: Any
    answer: asyncio.Future[Any]


class HandlerThreads:
    """The threads that run handlers that are not async: *count_max* at most, and none before it is needed."""

    def __init__(self, count_max: int) -> None:
        self.count_max = min(count_max, THREADS_MAX)
        self._loop = asyncio.get_running_loop()
        self._free_count = self.count_max
        self._waiters = Waiters()
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._started_count = 0
        self._idle_count = 0
        """How many of the threads that were started have no call."""

    async def take(self) -> None:
        """Wait for a thread; it is the caller's until `call` or `give_back`."""
        if self._free_count:
            self._free_count -= 1
            return
        await self._waiters.wait(self.give_back)

    def give_back(self) -> None:
        """Give up a thread that was taken: the next one who waits for one gets it."""
        if not self._waiters.wake_next():
            self._free_count += 1

    def call(self, function: Callable[..., Any], argument: Any) -> asyncio.Future[Any]:
        """Call *function* in the thread that was taken; it is free again when the call has ended.

        Where the future is cancelled the call goes on, and what it returns is let go.
        """
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self._idle_count:
            self._idle_count -= 1
        else:
            self._start_thread()
        self._calls.put(_Call(function, argument, answer))
        return answer

    def close(self) -> None:
        """End the threads, each once it has nothing to do."""
        for _ in range(self._started_count):
            self._calls.put(None)

    def _start_thread(self) -> None:
        try:
            HandlerThread(self._loop, self._serve, f"{_NAME}-{self._started_count}").start()
        except RuntimeError:
            # The system has none left.
            self.give_back()
            raise
        self._started_count += 1

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            outcome: Any = None
            failure: BaseException | None = None
            try:
                outcome = call.function(call.argument)
            except BaseException as error:  # noqa: BLE001 - the user's code: who waits for the answer gets it raised
                failure = error
            try:
                self._loop.call_soon_threadsafe(self._answer, call, outcome, failure)
            except RuntimeError:
                # The loop is closed: nobody waits for this, nor for anything else.
                discard(outcome)
                return
            # Or it would be kept until the next call.
            del call, outcome, failure

    def _answer(self, call: _Call, outcome: Any, failure: BaseException | None) -> None:
        self._idle_count += 1
        self.give_back()
        if call.answer.done():
            # Given up meanwhile.
            discard(outcome)
        elif failure is None:
            call.answer.set_result(outcome)
        else:
            call.answer.set_exception(failure)
