"""Keeping a day while it is archived: its lease is renewed beside the work, and the work ends where it is lost.

What protects the store is the statement that marks the day, which needs a lease that stands. To stop as soon as it is
lost spares the work that would be thrown away, and the other run a rival.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import structlog

from msgbroker.contract.errors import MessageCenterError, StoreUnavailableError
from msgdb.archive import claims
from msgdb.archive.records import ArchiveRun
from msgdb.store import MessageStore

log = structlog.get_logger(__name__)

_RENEWALS: Final = 4
"""How often a lease is renewed in its time: some may fail."""

ResultT = TypeVar("ResultT")


class Lease:
    """The lease of a run, as long as it is kept."""

    def __init__(self, run: ArchiveRun, lost: asyncio.Future[None]) -> None:
        self.run = run
        self._lost = lost

    async def during(self, work: Awaitable[ResultT]) -> ResultT:
        """Return what *work* gives. Raises RunLostError, with *work* cancelled, as soon as the lease is lost."""
        task = asyncio.ensure_future(work)
        try:
            either: list[asyncio.Future[Any]] = [task, self._lost]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self._lost.done():
                self._lost.result()
            return await task
        finally:
            # What the work has in hand, a connection or a job, is its own until it has ended.
            task.cancel()
            await asyncio.wait([task])


@asynccontextmanager
async def kept(store: MessageStore, run: ArchiveRun, lease_seconds: float) -> AsyncIterator[Lease]:
    """Renew the lease of *run* until the block ends."""
    lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    renewing = asyncio.ensure_future(_renew(store, run, lease_seconds, lost))
    try:
        yield Lease(run, lost)
    finally:
        renewing.cancel()
        await asyncio.wait([renewing])
        if lost.done():
            lost.exception()


async def _renew(store: MessageStore, run: ArchiveRun, lease_seconds: float, lost: asyncio.Future[None]) -> None:
    while True:
        await asyncio.sleep(lease_seconds / _RENEWALS)
        try:
            async with store.transaction() as connection:
                await claims.renew(connection, run, lease_seconds)
        except StoreUnavailableError:
            # The store may be back before the lease has passed; whether it has, the store says.
            log.warning("archive.lease_not_renewed", run_id=str(run.run_id), exc_info=True)
        except MessageCenterError as error:
            lost.set_exception(error)
            return
