"""Turns at something that only so many may do at a time: fairly between those who want it, however much each wants.

Who waits is served by turns over the names, not in the order of coming: a group that catches up with hundreds of lanes
does not stand in the way of another group's one read.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class FairTurns:
    """So many places, and the line of those who wait for one, by their names."""

    def __init__(self, at_once_max: int) -> None:
        self._free = at_once_max
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, name: Hashable) -> AsyncIterator[None]:
        """Wait for *name*'s turn, and hold it for the length of the block."""
        await self._wait(name)
        try:
            yield
        finally:
            self._free += 1
            self._next()

    async def _wait(self, name: Hashable) -> None:
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # It got its turn in the same moment.
                self._free += 1
                self._next()
            raise

    def _next(self) -> None:
        while self._free > 0 and self._waiting:
            name, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                # Behind the others.
                self._waiting[name] = turns
            if not turn.cancelled():
                self._free -= 1
                turn.set_result(None)
