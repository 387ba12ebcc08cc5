"""Single pieces of work that delivery starts, reads and turns of the pump, and what one of them failed with.

They have handled what an outage of the store does. Anything else ends the broker, as it does in any of its loops: the
loop here, which waits for nothing else, raises it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Protocol

from msgbroker.server.loops import woken


class TaskStarter(Protocol):
    """Whoever starts work that goes on beside the caller: `WatchedTasks`, and in tests what stands for it."""

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Begin *work* in a task of its own; it is the starter's business how that ends."""
        ...


class WatchedTasks:
    """The work under way. The first failure of any of it is raised by `run`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._wake = asyncio.Event()

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Begin *work* in a task of its own."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def call_soon(self, work: Callable[[], None]) -> None:
        """Have *work*, which waits for nothing, done once the event loop gets to it."""
        asyncio.get_running_loop().call_soon(self._do, work)

    async def run(self, stop: asyncio.Event) -> None:
        """Raise what any of the work failed with, as soon as it does, or return when *stop* is set."""
        while not stop.is_set():
            await woken(stop, self._wake)
            if self._failure is not None:
                raise self._failure

    def cancel_all(self) -> list[asyncio.Task[None]]:
        """Cancel the tasks under way, and return them: they may take a moment to end."""
        for task in self._tasks:
            task.cancel()
        return [*self._tasks]

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as failure:  # noqa: BLE001 - raised by `run`
            self._failed(failure)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failed(failure)

    def _failed(self, failure: BaseException) -> None:
        self._failure = self._failure or failure
        self._wake.set()
