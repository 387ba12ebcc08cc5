"""The message store as a process holds it: one pool for reads and checkpoints, and dedicated connections."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from msgdb.connections import Connection, ConnectionConfig, ConnectionPool, connect
from msgdb.failures import store_failures

__all__ = ["Connection", "ConnectionConfig", "MessageStore"]


class MessageStore:
    """A way to the store. Opening it connects to nothing: the store may come later."""

    def __init__(self, config: ConnectionConfig) -> None:
        self._config = config
        self._pool = ConnectionPool(config)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, url: str, *, pool_size: int = 8, prepare_threshold: int | None = 5, application_name: str = "msgcenter"
    ) -> AsyncIterator[Self]:
        """Hold the store at *url* until the block ends; `prepare_threshold=None` never prepares a statement."""
        store = cls(
            ConnectionConfig(
                url, pool_size=pool_size, prepare_threshold=prepare_threshold, application_name=application_name
            )
        )
        try:
            yield store
        finally:
            await store.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection in autocommit mode. Raises StoreUnavailableError when the store is out of reach."""
        async with self._pool.connection() as connection:
            yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Lend a connection in a transaction that commits when the block ends well."""
        async with self._pool.connection() as connection, connection.transaction():
            yield connection

    async def connect_dedicated(self) -> Connection:
        """Open a connection outside the pool, in autocommit mode; the caller closes it."""
        return await connect(self._config)

    @asynccontextmanager
    async def dedicated_connection(self) -> AsyncIterator[Connection]:
        """Open a connection outside the pool for the length of the block; failures are translated."""
        connection = await self.connect_dedicated()
        try:
            with store_failures():
                yield connection
        finally:
            await connection.close()

    async def ping(self) -> None:
        """Ask the store for an answer. Raises StoreUnavailableError."""
        async with self.connection() as connection:
            await connection.execute("SELECT 1")

    async def close(self) -> None:
        """Close the pool; what is lent is closed when it comes back."""
        await self._pool.close()
