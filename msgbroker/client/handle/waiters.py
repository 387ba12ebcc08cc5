"""Those who wait for something that is given to one at a time, in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Waiters:
    """A line of tasks."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._line: deque[asyncio.Future[None]] = deque()

    async def wait(self, pass_on: Callable[[], object]) -> None:
        """Wait at the end of the line; call *pass_on* where the caller is cancelled in the moment it is woken."""
        waiter = self._loop.create_future()
        self._line.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                pass_on()
            raise

    def wake_next(self) -> bool:
        """Wake the first who still waits; return False if nobody does."""
        while self._line:
            waiter = self._line.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return True
        return False
