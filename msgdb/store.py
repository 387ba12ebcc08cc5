"""The message store as a process holds it: one pool for reads and checkpoints, and dedicated connections."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self
from weakref import WeakSet

from msgbroker.contract.errors import StoreUnavailableError
from msgdb.connections import (
    BlockingConnection,
    Connection,
    ConnectionConfig,
    ConnectionPool,
    SessionLimits,
    connect,
    connect_blocking,
    cut,
)
from msgdb.failures import store_failures

__all__ = ["Connection", "ConnectionConfig", "MessageStore", "SessionLimits"]


class MessageStore:
    """A way to the store. Opening it connects to nothing: the store may come later."""

    def __init__(self, config: ConnectionConfig) -> None:
        self._config = config
        self._pool = ConnectionPool(config)
        self._dedicated: WeakSet[Connection | BlockingConnection] = WeakSet()
        self._is_cut = False

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str,
        *,
        pool_size: int = 8,
        pooled: bool = False,
        limits: SessionLimits | None = None,
        application_name: str = "msgcenter",
    ) -> AsyncIterator[Self]:
        """Hold the store at *url* until the block ends.

        Args:
            url: libpq's.
            pool_size: Connections at most; dedicated ones come on top.
            pooled: It is behind a transaction-pooling PgBouncer: no statement is prepared, nothing set for a session.
            limits: How long the pool's connections may hold others up.
            application_name: What PostgreSQL's views show.
        """
        store = cls(
            ConnectionConfig(
                url,
                pool_size=pool_size,
                prepare_threshold=None if pooled else 5,
                application_name=application_name,
                limits=limits,
                pooled=pooled,
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
        if self._is_cut:
            raise StoreUnavailableError("this way to the store is closed")
        connection = await connect(self._config)
        self._dedicated.add(connection)
        return connection

    def connect_blocking(self) -> BlockingConnection:
        """Open a connection outside the pool, for a thread that waits for what it asks; the caller closes it."""
        if self._is_cut:
            raise StoreUnavailableError("this way to the store is closed")
        connection = connect_blocking(self._config)
        self._dedicated.add(connection)
        self._cut_if_late(connection)
        return connection

    def _cut_if_late(self, connection: BlockingConnection) -> None:
        # The event loop may have cut everything while a thread connected: nobody would cut this one any more.
        if self._is_cut:
            cut(connection)

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

    def cut(self) -> None:
        """Break every connection in use, and open no more: for an end that cannot wait for a server that hangs."""
        self._is_cut = True
        self._pool.cut()
        for connection in list(self._dedicated):
            cut(connection)

    async def close(self) -> None:
        """Close the pool; what is lent is closed when it comes back."""
        await self._pool.close()
