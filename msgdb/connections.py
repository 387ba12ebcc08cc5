"""Connections to the store: how each is opened, and the small pool that reads and checkpoints share.

The pool connects on demand and has no tasks of its own: after an outage the first caller finds the store back, with no
backoff to wait out. It keeps nothing on a session, so it may sit behind a transaction-pooling PgBouncer.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from msgbroker.contract.errors import StoreUnavailableError
from msgdb.failures import store_failures

Connection: TypeAlias = psycopg.AsyncConnection[TupleRow]


@dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """How to reach the store."""

    url: str
    pool_size: int = 8
    """Connections of the pool at most; dedicated ones come on top."""
    prepare_threshold: int | None = 5
    """After how many executions a statement is prepared; None, never: for a pooler that cannot keep track of it."""
    connect_timeout_seconds: float = 3.0
    acquire_timeout_seconds: float = 5.0
    """How long a caller waits for a free connection of the pool."""
    tcp_user_timeout_seconds: float = 5.0
    """After how long without an answer from the network a connection is given up."""
    application_name: str = "msgcenter"


async def connect(config: ConnectionConfig) -> Connection:
    """Open a connection in autocommit mode; the caller closes it."""
    with store_failures():
        return await psycopg.AsyncConnection.connect(
            config.url,
            autocommit=True,
            prepare_threshold=config.prepare_threshold,
            # libpq takes whole seconds, and 2 at least.
            connect_timeout=max(2, round(config.connect_timeout_seconds)),
            application_name=config.application_name,
            keepalives=1,
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=3,
            tcp_user_timeout=round(config.tcp_user_timeout_seconds * 1_000),
        )


class ConnectionPool:
    """At most `pool_size` connections, the one used last first."""

    def __init__(self, config: ConnectionConfig) -> None:
        self._config = config
        self._slots = asyncio.Semaphore(config.pool_size)
        self._idle: list[Connection] = []
        self._is_closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection in autocommit mode; failures of the store inside are translated."""
        await self._take_slot()
        try:
            connection = await self._find_idle() or await connect(self._config)
            try:
                with store_failures():
                    yield connection
            finally:
                await self._give_back(connection)
        finally:
            self._slots.release()

    async def close(self) -> None:
        """Close what is idle; what is lent is closed when it comes back."""
        self._is_closed = True
        await self._close_idle()

    async def _take_slot(self) -> None:
        seconds = self._config.acquire_timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                await self._slots.acquire()
        except TimeoutError as error:
            problem = f"all {self._config.pool_size} connections were in use for {seconds:g} s"
            raise StoreUnavailableError(problem) from error

    async def _find_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed and not _has_unread_data(connection):
                return connection
            await connection.close()
        return None

    async def _give_back(self, connection: Connection) -> None:
        if connection.closed:
            # The others were opened to the same server, and have most likely lost it, too.
            await self._close_idle()
        elif self._is_closed or connection.info.transaction_status != TransactionStatus.IDLE:
            await connection.close()
        else:
            self._idle.append(connection)

    async def _close_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()


def _has_unread_data(connection: Connection) -> bool:
    # A server says nothing to an idle client, except that it goes away.
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
