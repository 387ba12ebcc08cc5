"""Read from the message store for a command, or change something in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgconsole.local import places
from msgconsole.local.databases import open_message_store
from msgdb.postgres.connections import Connection

FoundT = TypeVar("FoundT")


def read_store(act: Callable[[Connection], Awaitable[FoundT]]) -> FoundT:
    """Return what *act* reads. Raises LookTooLongError where that takes too long."""

    async def run() -> FoundT:
        async with open_message_store(places.msgdb_url()) as store, store.looking() as connection:
            return await act(connection)

    return asyncio.run(run())


def change_store(act: Callable[[Connection], Awaitable[FoundT]]) -> FoundT:
    """Carry out *act* in a transaction, and return what came of it."""

    async def run() -> FoundT:
        async with open_message_store(places.msgdb_url()) as store, store.transaction() as connection:
            return await act(connection)

    return asyncio.run(run())
