"""The way to confdb: one engine, one place where its failures become ours.

A broker lives on when confdb does not answer, so nothing here waits without an end: connecting, waiting for a
connection of the pool, and whatever is done on one.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final, TypeAlias
from weakref import WeakSet

import psycopg
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from msgbroker.contract.errors import ConfigUnavailableError, NotMigratedError
from msgbroker.contract.sqlstates import is_outage

Connection: TypeAlias = psycopg.AsyncConnection[tuple[object, ...]]

CONNECT_TIMEOUT_SECONDS: Final = 3
_SESSION_OPTIONS: Final = "-c synchronous_commit=local"
OPERATION_TIMEOUT_SECONDS: Final = 10.0


class ConfigStore:
    """Sessions and connections to confdb. `open` makes one; it connects when it is used."""

    def __init__(
        self, url: str, engine: AsyncEngine, operation_timeout_seconds: float, opened: WeakSet[Connection], options: str
    ) -> None:
        self._url = url
        self._options = options
        self._engine = engine
        self._autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._sessions = async_sessionmaker(engine, expire_on_commit=False)
        self._operation_timeout_seconds = operation_timeout_seconds
        self._opened = opened

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str,
        *,
        pool_size: int = 4,
        operation_timeout_seconds: float = OPERATION_TIMEOUT_SECONDS,
        owns_sessions: bool = False,
    ) -> AsyncIterator[ConfigStore]:
        """Make the store at libpq URL *url*; close its connections at the end. Reaches for no server yet.

        *owns_sessions*: there is no pooler in between, and settings for a session may be made. Then a broker's
        heartbeat does not wait for a standby that is away; changes of the configuration do.
        """
        opened: WeakSet[Connection] = WeakSet()
        options = _SESSION_OPTIONS if owns_sessions else ""

        async def open_one() -> Connection:
            connection = await connect(url, options)
            opened.add(connection)
            return connection

        engine = create_async_engine(
            "postgresql+psycopg://",
            # libpq reads its URL itself: SQLAlchemy's own parser does not know all of them.
            async_creator=open_one,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=CONNECT_TIMEOUT_SECONDS,
            # After a restart of the server the pool's connections are dead: ask before use.
            pool_pre_ping=True,
            use_native_hstore=False,
            # Changes rely on it: who waits for the version's lock sees what its holder has committed.
            isolation_level="READ COMMITTED",
        )
        has_ended = False

        @sa.event.listens_for(engine.sync_engine, "checkin")
        def close_late(_: object, entry: ConnectionPoolEntry) -> None:
            # What was lent at the end comes back to a pool that nobody empties any more.
            if has_ended:
                entry.close()

        try:
            yield cls(url, engine, operation_timeout_seconds, opened, options)
        finally:
            has_ended = True
            await engine.dispose()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        """Give a session in a transaction that commits at the end."""
        async with self._bounded(), self._sessions.begin() as session:
            yield session

    @asynccontextmanager
    async def snapshot_transaction(self) -> AsyncIterator[AsyncConnection]:
        """Give a connection in a read-only transaction whose statements all see the same moment."""
        reading = self._engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        async with self._bounded(), reading.begin() as connection:
            yield connection

    @asynccontextmanager
    async def single_statement(self) -> AsyncIterator[AsyncConnection]:
        """Give a connection on which each statement is a transaction, and one round trip."""
        async with self._bounded(), self._autocommit.connect() as connection:
            yield connection

    async def connect_dedicated(self) -> Connection:
        """Return a new connection outside of the pool, in autocommit; for LISTEN. The caller closes it."""
        with translated():
            connection = await connect(self._url, self._options)
            await connection.set_autocommit(True)
        self._opened.add(connection)
        return connection

    def cut(self) -> None:
        """Break every connection at its socket: for an end that cannot wait for a server that hangs.

        Whoever waits on one hears at once that it is lost.
        """
        for connection in self._opened:
            if not connection.closed:
                # The descriptor stays open, or psycopg would never be woken; the socket behind it is the same.
                with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as broken:
                    broken.shutdown(socket.SHUT_RDWR)

    @asynccontextmanager
    async def _bounded(self) -> AsyncIterator[None]:
        deadline = asyncio.timeout(self._operation_timeout_seconds)
        try:
            with translated():
                async with deadline:
                    yield
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise ConfigUnavailableError(f"no answer within {self._operation_timeout_seconds:g} s") from error


async def connect(url: str, options: str = "") -> Connection:
    """Connect as every connection to confdb should be; *options* are for the session."""
    given = conninfo_to_dict(url).get("options") or ""
    connection = await psycopg.AsyncConnection.connect(
        make_conninfo(url, options=f"{given} {options}".strip()) if options else url,
        # Whatever the database's default is: what is written would be something else, and nobody would be told.
        client_encoding="UTF8",
        connect_timeout=CONNECT_TIMEOUT_SECONDS,
        # A transaction pooler gives each transaction another session: no prepared statements.
        prepare_threshold=None,
        # A peer that vanished without a word is noticed in seconds, not in the kernel's two hours.
        keepalives_idle=5,
        keepalives_interval=2,
        keepalives_count=3,
        tcp_user_timeout=8_000,
    )
    # Of those few settings that a pooler keeps for each of its clients. The server says when it is connected to.
    if not (connection.info.parameter_status("DateStyle") or "").startswith("ISO"):
        try:
            await connection.set_autocommit(True)
            await connection.execute("SET datestyle = 'ISO'")
            await connection.set_autocommit(False)
        except BaseException:
            await connection.close()
            raise
    return connection


@contextmanager
def translated() -> Iterator[None]:
    """Turn "no database" into ConfigUnavailableError, "no tables" into NotMigratedError; let the rest pass."""
    try:
        yield
    except PoolTimeoutError as error:
        raise ConfigUnavailableError("all connections are busy") from error
    except DBAPIError as error:
        _raise_translated(error.orig)
        raise
    except psycopg.Error as error:
        _raise_translated(error)
        raise


@contextmanager
def as_outage() -> Iterator[None]:
    """Turn whatever confdb says into ConfigUnavailableError: for loops that go on by what they know already.

    Tables that are not there while a backup is restored, a block that cannot be read, a right that was taken away: that
    keeps a process from starting, but is no reason for all that run to end. It may be put right.
    """
    try:
        yield
    except (NotMigratedError, DBAPIError, psycopg.Error) as error:
        detail = error.message if isinstance(error, NotMigratedError) else f"{type(error).__name__}: {error}"
        raise ConfigUnavailableError(" ".join(detail.split())) from error


def _raise_translated(error: BaseException | None) -> None:
    if isinstance(error, psycopg.Error) and _is_outage(error):
        raise ConfigUnavailableError(str(error).strip() or type(error).__name__) from error
    if isinstance(error, (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn)):
        raise NotMigratedError("the configuration database") from error


def _is_outage(error: psycopg.Error) -> bool:
    return is_outage(error.sqlstate, is_operational=isinstance(error, psycopg.OperationalError))


def constraint_of(error: sa.exc.IntegrityError) -> str | None:
    """Return the name of the constraint that was violated."""
    return error.orig.diag.constraint_name if isinstance(error.orig, psycopg.Error) else None
