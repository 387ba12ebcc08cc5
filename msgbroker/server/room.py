"""Room for bytes: so many may be held at a time, and whoever finds none waits for it in the order of coming."""

from __future__ import annotations

import asyncio
from collections import deque


class Room:
    """See the module. The last one let in may go over the bound: so a frame of any size gets in some time."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def is_full(self) -> bool:
        """Whether whoever comes now has to wait."""
        return bool(self._waiting) or self.bytes_held >= self.bytes_max

    async def acquire(self, size_bytes: int) -> None:
        """Hold *size_bytes*, once it is this caller's turn and there is room."""
        if not self.is_full:
            self.bytes_held += size_bytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = (size_bytes, turn)
        self._waiting.append(waiting)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # It got its turn in the same moment.
                self.release(size_bytes)
            elif waiting in self._waiting:
                self._waiting.remove(waiting)
            raise

    def take(self, size_bytes: int) -> None:
        """Hold *size_bytes* without waiting, whether there is room or not."""
        self.bytes_held += size_bytes

    def release(self, size_bytes: int) -> None:
        """Give back what was held: whoever is first in turn gets in, and the next one only if there is room left."""
        self.bytes_held -= size_bytes
        while self._waiting and self.bytes_held < self.bytes_max:
            wanted_bytes, turn = self._waiting.popleft()
            if not turn.cancelled():
                self.bytes_held += wanted_bytes
                turn.set_result(None)
