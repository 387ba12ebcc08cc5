"""The thread behind a blocking center, with the event loop that its core runs on.

What is begun there before it stops has an end, and whoever waits for it an answer. What comes later is refused.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from msgbroker.client.connect.background import cancel_and_wait
from msgbroker.client.connect.handler_thread import is_handler_thread
from msgbroker.contract.errors import CenterClosedError

Result = TypeVar("Result")

_THREAD_NAME: Final = "msgcenter-client"
_FINISH_SECONDS: Final = 2.0


class LoopThread:
    """A thread that runs an event loop until it is stopped."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._beginning = threading.Lock()
        self._is_stopping = False
        # A daemon: a program that forgets to close still ends.
        self._thread = threading.Thread(target=self.loop.run_forever, name=_THREAD_NAME, daemon=True)
        self._thread.start()

    def is_current(self) -> bool:
        """Whether the caller runs in this very thread."""
        return threading.current_thread() is self._thread

    def is_of_handler(self) -> bool:
        """Whether the caller is a handler of this loop's center, in a thread of its own."""
        return is_handler_thread(self.loop)

    def call(self, coroutine: Coroutine[Any, Any, Result], *, behind: Callable[[], None]) -> Result:
        """Run *behind* and then *coroutine* on the loop, and wait for its end.

        Raises CenterClosedError if the loop stops, or has stopped.
        """
        future = self._begin(coroutine, behind)
        try:
            outcome = future.result()
        except CancelledError as error:
            if not self._is_stopping:
                raise
            raise CenterClosedError("this MessageCenter was closed while the call was under way") from error
        finally:
            # Ctrl-C in this thread must not leave the call running in the other.
            future.cancel()
        if isinstance(outcome, _Raised):
            raise outcome.end
        return outcome

    def stop(self) -> None:
        """End the loop and the thread, once the calls of other threads have their answers."""
        with self._beginning:
            self._is_stopping = True
        self._run_last(_finish_tasks())
        self._run_last(self.loop.shutdown_asyncgens())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def _begin(self, coroutine: Coroutine[Any, Any, Result], behind: Callable[[], None]) -> Future[Result | _Raised]:
        # Together: what is begun when the loop stops is among the tasks that are waited for then.
        with self._beginning:
            if self._is_stopping:
                coroutine.close()
                raise CenterClosedError
            return asyncio.run_coroutine_threadsafe(_contained(coroutine, behind), self.loop)

    def _run_last(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()


@dataclass(frozen=True, slots=True)
class _Raised:
    end: BaseException


async def _contained(coroutine: Coroutine[Any, Any, Result], behind: Callable[[], None]) -> Result | _Raised:
    """Return what *coroutine* returns, or the SystemExit that it raises: that would end the loop, for all threads."""
    behind()
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as end:
        return _Raised(end)


async def _finish_tasks() -> None:
    """Let every other task of the loop end: somebody waits for each `run` and `publish`."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, pending = await asyncio.wait(others, timeout=_FINISH_SECONDS)
        await cancel_and_wait(*pending)
