"""Append: frames into the store, from asyncio.

The transaction (`msgdb.append.transaction`) runs in a thread of its own: it waits for PostgreSQL most of the time,
and what it waits for must not wait in turn until an event loop that is busy with the next messages gets round to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from functools import partial

import structlog

from msgbroker.contract.errors import StoreUnavailableError
from msgdb.append.plan import AppendFrame, FrameResult, Held
from msgdb.append.transaction import AppendConfig, AppendSession, LayoutChangedError, PartitionMissingError
from msgdb.postgres.connections import BlockingConnection

__all__ = ["AppendConfig", "Appender", "LayoutChangedError", "NotTriedError"]

log = structlog.get_logger(__name__)


class NotTriedError(Exception):
    """What these frames were to follow did not go through as a whole: give them again, behind what is left of it."""


class Appender:
    """Stores frames, one transaction at a time and in the order of the calls."""

    def __init__(
        self,
        connect: Callable[[], BlockingConnection],
        ensure_partitions: Callable[[Collection[date]], Awaitable[None]],
        config: AppendConfig | None = None,
    ) -> None:
        """Make an appender. *connect* is called in its thread, *ensure_partitions* is awaited outside of it."""
        self._session = AppendSession(connect, config or AppendConfig())
        self._ensure_partitions = ensure_partitions
        self._thread = ThreadPoolExecutor(1, "append")
        self._is_disturbed = False
        """The last transaction did not go through as a whole. Only the thread looks at it."""

    async def append(
        self, frames: Sequence[AppendFrame], *, around_held: bool = False, follows: bool = False
    ) -> list[FrameResult]:
        """Store *frames* in one transaction and return what became of each, in their order.

        Args:
            frames: In the order in which their publishers sent them.
            around_held: Do not wait for locks, because some of these were `Held` a moment ago.
            follows: They come behind others whose results are not known yet.

        Raises StoreUnavailableError (nothing is known to be stored: the same frames may be given again),
        LayoutChangedError or NotTriedError (nothing is stored).
        """
        try:
            return await self._run(frames, around_held=around_held, follows=follows)
        except PartitionMissingError as error:
            days = {datetime.fromtimestamp(time_us / 1_000_000, UTC).date() for time_us in error.times_us}
            log.warning("append.partition_missing", days=sorted(str(day) for day in days))
        await self._ensure_partitions(days)
        try:
            return await self._run(frames, around_held=around_held)
        except PartitionMissingError as error:
            raise StoreUnavailableError("the partition of a day cannot be made") from error

    async def find_broken(self, frame: AppendFrame) -> dict[int, str]:
        """Return the places of the messages that cannot be stored, whatever the reason, as far as a try can tell.

        Raises StoreUnavailableError.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._session.find_broken, frame)

    async def close(self) -> None:
        """Close the connection, after the transaction in flight: also where nobody waits for that any more."""
        closing = self._thread.submit(self._session.close)
        self._thread.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(closing))

    async def _run(
        self, frames: Sequence[AppendFrame], *, around_held: bool, follows: bool = False
    ) -> list[FrameResult]:
        append = partial(self._append_in_turn, frames, around_held=around_held, follows=follows)
        return await asyncio.get_running_loop().run_in_executor(self._thread, append)

    def _append_in_turn(self, frames: Sequence[AppendFrame], *, around_held: bool, follows: bool) -> list[FrameResult]:
        if follows and self._is_disturbed:
            raise NotTriedError
        self._is_disturbed = True
        results = self._session.append(frames, around_held=around_held)
        self._is_disturbed = any(isinstance(result, Held) for result in results)
        return results
