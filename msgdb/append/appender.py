"""Append: frames into the store, from asyncio.

The transaction (`msgdb.append.transaction`) runs in a thread of its own: it waits for PostgreSQL most of the time,
and what it waits for must not wait in turn until an event loop that is busy with the next messages gets round to it.
What fails is mended and tried again as `msgdb.append.mending` says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from msgdb.append.mending import Attempt, ChooseAgain, EnsurePartitions, store_mending
from msgdb.append.plan import AppendFrame, FrameResult, Held
from msgdb.append.session import AppendConfig
from msgdb.append.transaction import AppendTransaction, LayoutChangedError
from msgdb.postgres.connections import BlockingConnection

__all__ = ["AppendConfig", "Appender", "LayoutChangedError", "NotTriedError"]


class NotTriedError(Exception):
    """What these frames were to follow did not go through as a whole: give them again, behind what is left of it."""


class Appender:
    """Stores frames, one transaction at a time and in the order of the calls."""

    def __init__(
        self,
        connect: Callable[[], BlockingConnection],
        ensure_partitions: EnsurePartitions,
        *,
        config: AppendConfig | None = None,
    ) -> None:
        """Make an appender. *connect* is called in its thread, *ensure_partitions* is awaited outside of it."""
        self._transaction = AppendTransaction(connect, config or AppendConfig())
        self._ensure_partitions = ensure_partitions
        self._thread = ThreadPoolExecutor(1, "append")
        self._is_disturbed = False
        """Whether the last transaction did not go through as a whole. Only the thread looks at it."""

    async def append(
        self,
        frames: Sequence[AppendFrame],
        *,
        around_held: bool = False,
        follows: bool = False,
        choose_again: ChooseAgain | None = None,
    ) -> list[FrameResult]:
        """Store *frames* in one transaction and return what became of each, in their order.

        Args:
            frames: In the order in which their publishers sent them.
            around_held: Do not wait for locks, because some of these were `Held` a moment ago.
            follows: They come behind others whose results are not known yet.
            choose_again: Called where a queue turns out to be sealed: gives the messages other ones.

        Raises StoreUnavailableError (nothing is known to be stored: the same frames may be given again), NotTriedError
        or, where nobody can choose again, LayoutChangedError (nothing is stored).
        """
        attempt = Attempt(
            frames=frames,
            around_held=around_held,
            follows=follows,
            ensure_partitions=self._ensure_partitions,
            choose_again=choose_again,
        )
        return await store_mending(attempt, self._try_once)

    async def find_broken(self, frame: AppendFrame) -> dict[int, str]:
        """Return the places of the messages that cannot be stored, whatever the reason, as far as a try can tell.

        Raises StoreUnavailableError.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._transaction.find_broken, frame)

    async def close(self) -> None:
        """Close the connection, after the transaction in flight: also where nobody waits for that any more."""
        closing = self._thread.submit(self._transaction.close)
        self._thread.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(closing))

    def _try_once(self, attempt: Attempt) -> asyncio.Future[list[FrameResult]]:
        return asyncio.get_running_loop().run_in_executor(self._thread, self._try_in_turn, attempt)

    def _try_in_turn(self, attempt: Attempt) -> list[FrameResult]:
        if attempt.follows and self._is_disturbed:
            raise NotTriedError
        self._is_disturbed = True
        if attempt.refuses_first:
            self._transaction.refuse(attempt.frames)
            attempt.refuses_first = False
        results = self._transaction.store(attempt.frames, around_held=attempt.around_held)
        self._is_disturbed = any(isinstance(result, Held) for result in results)
        return results
