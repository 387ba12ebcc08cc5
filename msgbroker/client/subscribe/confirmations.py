"""Who waits until the broker has heard all that was said so far: requests are numbered where somebody asks for it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable


class Confirmations:
    """The confirmations that one stream has asked for, and asks for next."""

    def __init__(self, on_asked: Callable[[], None]) -> None:
        """Call *on_asked* where the next request has to be sent for it."""
        self._on_asked = on_asked
        self._loop = asyncio.get_running_loop()
        self._asked: list[asyncio.Future[None]] = []
        self._under_way: deque[tuple[int, list[asyncio.Future[None]]]] = deque()
        self._number = 0

    async def wait(self) -> None:
        """Wait until the broker has heard what was said so far, or never will."""
        confirmed = self._loop.create_future()
        self._asked.append(confirmed)
        self._on_asked()
        await confirmed

    def next_number(self) -> int | None:
        """Return the number to be confirmed of a request that has all that was said so far; None: nobody asks."""
        if not self._asked:
            return None
        self._number += 1
        self._under_way.append((self._number, self._asked))
        self._asked = []
        return self._number

    def take(self, number: int) -> None:
        """Take note that the broker has heard all up to the request of that number."""
        while self._under_way and self._under_way[0][0] <= number:
            _resolve(self._under_way.popleft()[1])

    def end(self) -> None:
        """Let everybody go on: the stream has ended."""
        _resolve(self._asked)
        self.take(self._number)


def _resolve(waiters: Iterable[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
