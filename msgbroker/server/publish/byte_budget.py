"""Room for bytes: so many may be held at a time, and whoever finds none waits for its turn.

Turns are fair by size: who asks for little does not wait for all who came before and asked for much, and nobody waits
for ever (self-clocked fair queueing). Each that waits is ranked by what had been let in when it came, and by its size.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import Self


class ByteBudget:
    """How many bytes may be held at a time, by all who hold some together.

    The last one let in may go over the bound: so a frame of any size gets in some time.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self._waiting: list[tuple[int, int, int, asyncio.Future[None]]] = []
        """Those that wait: rank, order of coming, size, and what is set when it is let in."""
        self._order = itertools.count()
        self._rank = 0
        """The rank of the last one that was let in after waiting."""

    @property
    def is_full(self) -> bool:
        """Whether whoever comes now has to wait."""
        return bool(self._waiting) or self.bytes_held >= self.bytes_max

    async def hold(self, size_bytes: int) -> Hold:
        """Return a hold of *size_bytes*, once it is this caller's turn and there is room."""
        if not self.is_full:
            return Hold(self, size_bytes)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (self._rank + size_bytes, next(self._order), size_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # It got its turn in the same moment.
                self.count(-size_bytes)
            else:
                self._forget(turn)
            raise
        return Hold(self, size_bytes, is_counted=True)

    def hold_at_once(self, size_bytes: int) -> Hold:
        """Return a hold of *size_bytes* without waiting, whether there is room or not."""
        return Hold(self, size_bytes)

    def count(self, size_bytes: int) -> None:
        """Count what a hold has more; less, with a negative number. Holds call this, and nobody else.

        Where there is room again whoever is first in turn gets in, and the next one only if there is room left.
        """
        self.bytes_held += size_bytes
        while self._waiting and self.bytes_held < self.bytes_max:
            self._rank, _, wanted_bytes, turn = heapq.heappop(self._waiting)
            if not turn.cancelled():
                self.bytes_held += wanted_bytes
                turn.set_result(None)

    def _forget(self, turn: asyncio.Future[None]) -> None:
        """Let one that went away wait no longer."""
        kept = [waiting for waiting in self._waiting if waiting[3] is not turn]
        if len(kept) < len(self._waiting):
            heapq.heapify(kept)
            self._waiting = kept


class Hold:
    """Bytes of a budget that somebody holds, until they are released: once, however often that is asked for.

    Used as a context, it releases at the end whatever it still has, so nothing that is raised in between can leak it.
    What was moved is another owner's to release.
    """

    __slots__ = ("_budget", "_size_bytes")

    def __init__(self, budget: ByteBudget, size_bytes: int, *, is_counted: bool = False) -> None:
        self._budget = budget
        self._size_bytes = size_bytes
        if not is_counted:
            budget.count(size_bytes)

    def grow(self, size_bytes: int) -> None:
        """Hold so much more, without waiting."""
        self._size_bytes += size_bytes
        self._budget.count(size_bytes)

    def moved(self) -> Hold:
        """Return a hold of the same bytes for another owner; this one has nothing any more."""
        size_bytes, self._size_bytes = self._size_bytes, 0
        return Hold(self._budget, size_bytes, is_counted=True)

    def release(self) -> None:
        """Give back what is held; nothing, where that was done or it was moved."""
        size_bytes, self._size_bytes = self._size_bytes, 0
        if size_bytes:
            self._budget.count(-size_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
