"""Connections to the store: how each is opened, and the small pool that reads and checkpoints share.

The pool connects on demand and has no tasks of its own: after an outage the first caller finds the store back, with no
backoff to wait out. It may sit behind a transaction-pooling PgBouncer: then it keeps nothing on a session.

What the pool lends is bounded, because a broker that freezes in the middle of a transaction keeps its row locks: the
server ends sessions that hold others up, and what a server that hangs does not answer is cut off from this end.
Dedicated connections have no such bounds: listening, maintenance and appending have their own.

What a transaction relies on it says itself, whatever the database's defaults are: READ COMMITTED (who waits for a lock
sees what its holder has committed), and no waiting for standbys, because nothing that goes through here is acknowledged
to a publisher: a cursor that is lost in a failover has its messages delivered once more, while one that waited for a
standby that is away would stop delivery. Appending has settings of its own. So does a connection: text is UTF-8, times
come in ISO's form. Both are among the few settings that a pooler keeps for each of its clients.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

import psycopg
import structlog
from psycopg import IsolationLevel
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from msgbroker.contract.errors import StoreUnavailableError
from msgdb.postgres.failures import store_failures

log = structlog.get_logger(__name__)

Connection: TypeAlias = psycopg.AsyncConnection[TupleRow]
BlockingConnection: TypeAlias = psycopg.Connection[TupleRow]
Check: TypeAlias = Callable[[Connection], Awaitable[None]]
"""A check of a connection: raises StoreUnavailableError where it leads to what is not to be used."""

_RELIED_ON: Final = {
    "synchronous_commit": "local",
    # Switched off, NULL in an array of texts would be the word.
    "array_nulls": "on",
}
_SESSION_DEFAULTS: Final = {"default_transaction_isolation": "read committed", **_RELIED_ON}
"""The settings of what runs without a transaction of its own."""
_ISO_DATES: Final = "SET datestyle = 'ISO'"


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """How long a connection of the pool may hold others up."""

    idle_in_transaction_seconds: float = 2.0
    """How long a transaction may stand idle, by the server's clock: what a frozen process has locked is free after
    it."""
    lock_seconds: float = 1.0
    statement_seconds: float = 5.0
    in_use_seconds: float = 8.0
    """How long a connection may be in use, by our clock (a server that hangs looks at none): it is cut then, and
    whoever waits on it hears of it."""

    def settings(self, *, local: bool) -> str:
        """Return the statement that sets what the server can see to; *local*: for the current transaction."""
        by_name = {
            "idle_in_transaction_session_timeout": self.idle_in_transaction_seconds,
            "lock_timeout": self.lock_seconds,
            "statement_timeout": self.statement_seconds,
        }
        settings = {name: str(round(seconds * 1_000)) for name, seconds in by_name.items()}
        if local:
            settings |= _RELIED_ON
        calls = [f"set_config('{name}', '{value}', {local})" for name, value in settings.items()]
        return f"SELECT {', '.join(calls)}"


@dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """How connections to the store are made, and how many."""

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
    limits: SessionLimits | None = None
    """The limits of the pool's connections; None: they have none."""
    pooled: bool = False
    """Behind a transaction-pooling PgBouncer: limits per transaction, not per session. A statement outside of one is
    then bounded by `in_use_seconds` alone."""


class _LimitedTransactions(psycopg.AsyncConnection[TupleRow]):
    """A connection whose sessions are others' as well: each transaction begins with its limits, and is checked."""

    settings = ""
    check: Check | None = None

    @asynccontextmanager
    async def transaction(
        self,
        savepoint_name: str | None = None,
        force_rollback: bool = False,  # noqa: FBT001, FBT002 - as inherited
    ) -> AsyncIterator[psycopg.AsyncTransaction]:
        """Open a transaction, or a savepoint inside of one, as inherited."""
        is_outermost = self.info.transaction_status == TransactionStatus.IDLE
        async with super().transaction(savepoint_name, force_rollback) as transaction:
            if is_outermost and self.settings:
                await self.execute(self.settings.encode())
            if is_outermost and self.check is not None:
                await self.check(self)
            yield transaction


async def connect(config: ConnectionConfig) -> Connection:
    """Open a connection in autocommit mode; the caller closes it."""
    kind = _LimitedTransactions if config.pooled else psycopg.AsyncConnection[TupleRow]
    with store_failures():
        connection = await kind.connect(_conninfo(config), autocommit=True, prepare_threshold=config.prepare_threshold)
        try:
            await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
            if not _has_iso_dates(connection):
                await connection.execute(_ISO_DATES)
        except BaseException:
            await connection.close()
            raise
        return connection


def connect_blocking(config: ConnectionConfig) -> BlockingConnection:
    """Open a connection as `connect` does, for a thread that waits for what it asks."""
    with store_failures():
        return psycopg.connect(_conninfo(config), autocommit=True, prepare_threshold=config.prepare_threshold)


def _has_iso_dates(connection: Connection) -> bool:
    # The server says so when it is connected to.
    return (connection.info.parameter_status("DateStyle") or "").startswith("ISO")


def _conninfo(config: ConnectionConfig) -> str:
    given = {"client_encoding": "UTF8"}
    if config.limits is not None and not config.pooled:
        # Of a broker. A pooler's sessions are not ours to set anything for; the URL may name options of its own.
        ours = " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in _SESSION_DEFAULTS.items())
        given["options"] = f"{conninfo_to_dict(config.url).get('options') or ''} {ours}".strip()
    return make_conninfo(
        config.url,
        **given,
        # libpq takes whole seconds, and 2 at least.
        connect_timeout=max(2, round(config.connect_timeout_seconds)),
        application_name=config.application_name,
        keepalives=1,
        keepalives_idle=5,
        keepalives_interval=2,
        keepalives_count=3,
        tcp_user_timeout=round(config.tcp_user_timeout_seconds * 1_000),
    )


def cut(connection: Connection | BlockingConnection) -> None:
    """Break a connection at the socket: whoever waits on it hears at once that it is lost.

    Closing it, or cancelling who waits, would first ask the server for something, and wait.
    """
    if connection.closed:
        return
    # The descriptor stays open, or psycopg would never be woken; the socket behind it is the same. Its thread may
    # be closing a blocking one at this very moment.
    with suppress(OSError, psycopg.OperationalError), socket.socket(fileno=os.dup(connection.fileno())) as broken:
        broken.shutdown(socket.SHUT_RDWR)


@contextmanager
def in_use(connection: Connection, limits: SessionLimits | None) -> Iterator[None]:
    """Cut *connection* should the block last for longer than it may be in use."""
    if limits is None:
        yield
        return
    timer = asyncio.get_running_loop().call_later(limits.in_use_seconds, _cut_late, connection)
    try:
        yield
    finally:
        timer.cancel()


class ConnectionPool:
    """A pool of `pool_size` connections at most, the one used last first. What *check* refuses is not lent."""

    def __init__(self, config: ConnectionConfig, check: Check | None = None) -> None:
        self._config = config
        self._check = check
        self._slots = asyncio.Semaphore(config.pool_size)
        self._idle: list[Connection] = []
        self._lent: set[Connection] = set()
        self._is_closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection in autocommit mode; failures of the store inside are translated."""
        await self._take_slot()
        try:
            connection = await self._find_idle() or await self._connect()
            try:
                with self._watched(connection), store_failures():
                    yield connection
            finally:
                await self._give_back(connection)
        finally:
            self._slots.release()

    async def close(self) -> None:
        """Close what is idle; what is lent is closed when it comes back."""
        self._is_closed = True
        await self._close_idle()

    def cut(self) -> None:
        """Break what is lent: for an end that cannot wait for the server."""
        self._is_closed = True
        for connection in self._lent:
            cut(connection)

    def cut_standing(self) -> None:
        """Break what is lent and what is idle: all that stands leads to where nobody is to go any more."""
        for connection in (*self._lent, *self._idle):
            cut(connection)

    async def _connect(self) -> Connection:
        if self._is_closed:
            raise StoreUnavailableError("this way to the store is closed")
        connection = await connect(self._config)
        try:
            with self._watched(connection), store_failures():
                await self._prepare(connection)
        except BaseException:
            # A caller that goes away at this moment, too: nobody else knows of it yet.
            await connection.close()
            raise
        return connection

    async def _prepare(self, connection: Connection) -> None:
        limits = self._config.limits
        if isinstance(connection, _LimitedTransactions):
            # Who answers may change with each transaction.
            connection.check = self._check
            if limits is not None:
                connection.settings = limits.settings(local=True)
            return
        if limits is not None:
            await connection.execute(limits.settings(local=False).encode())
        if self._check is not None:
            await self._check(connection)

    @contextmanager
    def _watched(self, connection: Connection) -> Iterator[None]:
        self._lent.add(connection)
        try:
            with in_use(connection, self._config.limits):
                yield
        finally:
            self._lent.discard(connection)

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


def _cut_late(connection: Connection) -> None:
    log.warning("store.connection_cut", problem="in use for too long")
    cut(connection)


def _has_unread_data(connection: Connection) -> bool:
    # A server says nothing to an idle client, except that it goes away.
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
