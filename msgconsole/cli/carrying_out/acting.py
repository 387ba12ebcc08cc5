"""Carry out an act of `msgconsole.operations` for a command: with both databases, open for as long as it takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from msgconsole.local import places
from msgconsole.local.databases import open_config_store, open_message_store
from msgconsole.operations.stores import Stores

DoneT = TypeVar("DoneT")


def act(operation: Callable[[Stores], Awaitable[DoneT]]) -> DoneT:
    """Carry out *operation* on both databases, and return what came of it."""

    async def run() -> DoneT:
        async with open_stores() as stores:
            return await operation(stores)

    return asyncio.run(run())


@asynccontextmanager
async def open_stores() -> AsyncIterator[Stores]:
    """Give both databases until the block ends."""
    async with (
        open_config_store(places.confdb_url()) as config,
        open_message_store(places.msgdb_url()) as messages,
    ):
        yield Stores(config, messages)
