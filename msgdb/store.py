"""The message store as a process holds it: one pool for reads and checkpoints, and dedicated connections.

A process that remembers offsets follows the database's history (`msgdb.postgres.history`): every new connection is
compared with it, and where it leads to another history, nothing is lent before the process has heard of it and
forgotten. Those that were opened before are cut then: the former primary may be alive, and whatever it is told is told
to nobody else.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final, Self
from weakref import WeakSet

import psycopg
import structlog

from msgbroker.contract.errors import LookTooLongError, StoreUnavailableError
from msgdb.postgres.connections import (
    BlockingConnection,
    Connection,
    ConnectionConfig,
    ConnectionPool,
    SessionLimits,
    connect,
    connect_blocking,
    cut,
    in_use,
)
from msgdb.postgres.failures import store_failures
from msgdb.postgres.history import History, find_history, find_history_blocking, note_history

log = structlog.get_logger(__name__)

__all__ = ["Connection", "ConnectionConfig", "MessageStore", "SessionLimits"]


_ANOTHER_HISTORY: Final = "the database goes on with another history: what was remembered of it is forgotten"
_LOOK_SECONDS_MAX: Final = 5.0

LOOK_SECONDS_MAX: Final = 3.0
"""How long a statement may take that only looks for something: whoever asked waits, and the disk serves others."""
_LOOK: Final = """
SELECT set_config('statement_timeout', %(milliseconds)s, true), set_config('transaction_read_only', 'on', true),
       set_config('max_parallel_workers_per_gather', '0', true), set_config('jit', 'off', true)
"""


@dataclass(frozen=True, slots=True)
class _Followed:
    """The history of the store that brokers go by, and the event loop that follows it."""

    history: History
    loop: asyncio.AbstractEventLoop


class MessageStore:
    """A way to the store. Opening it connects to nothing: the store may come later."""

    def __init__(self, config: ConnectionConfig) -> None:
        self._config = config
        self._pool = ConnectionPool(config, self._check)
        self._dedicated: WeakSet[Connection | BlockingConnection] = WeakSet()
        self._dedicated_lock = threading.Lock()
        self._is_cut = False
        self._followed: _Followed | None = None
        self._forgetters: list[Callable[[History], None]] = []

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

    async def follow_history(self) -> History:
        """Return the database's history, and from now on compare every new connection with it.

        Where one leads to another history, `on_new_history` tells of it on this event loop, and nothing is lent before:
        who had asked gets StoreUnavailableError, and asks again by what it knows then. So does whoever is at work on a
        connection that was opened before: it is cut.
        """
        history = await self._note_history()
        self._followed = _Followed(history, asyncio.get_running_loop())
        return history

    @property
    def history(self) -> History:
        """The history that is followed, as it was when it was met."""
        assert self._followed is not None, "follow_history comes first"
        return self._followed.history

    def on_new_history(self, forget: Callable[[History], None]) -> None:
        """Call *forget* when the database goes on with another history, in the order of these calls."""
        self._forgetters.append(forget)

    async def _note_history(self) -> History:
        # On a connection of its own: a transaction that is refused for the sake of it would take the note back.
        limits = self._config.limits
        connection = await connect(self._config)
        try:
            with in_use(connection, limits), store_failures():
                return await note_history(connection, limits)
        finally:
            await connection.close()

    async def _check(self, connection: Connection) -> None:
        """Compare the history at the other end with the one that is followed. Raises StoreUnavailableError."""
        if self._followed is None:
            return
        found = await find_history(connection)
        if found is None or found.history_id != self._followed.history.history_id:
            self._turn_to(found or await self._note_history())
            raise StoreUnavailableError(_ANOTHER_HISTORY)

    def _check_blocking(self, connection: BlockingConnection) -> None:
        """Compare as `_check` does, from a thread: what follows from it is for the event loop to do."""
        followed = self._followed
        if followed is None:
            return
        found = find_history_blocking(connection)
        if found is None or found.history_id != followed.history.history_id:
            looking = asyncio.run_coroutine_threadsafe(self._look(), followed.loop)
            with suppress(TimeoutError):
                looking.result(_LOOK_SECONDS_MAX)
            raise StoreUnavailableError(_ANOTHER_HISTORY)

    async def _look(self) -> None:
        self._turn_to(await self._note_history())

    def _turn_to(self, history: History) -> None:
        followed = self._followed
        if followed is None or followed.history.history_id == history.history_id:
            # Several connections may have met it at the same time.
            return
        log.error("store.history_changed", history_id=str(history.history_id))
        self._followed = replace(followed, history=history)
        # All of them were compared with the former one. What they were told last is forgotten next.
        self._pool.cut_standing()
        self._cut_dedicated()
        for forget in self._forgetters:
            forget(history)

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

    @asynccontextmanager
    async def transaction_in(self, history: History) -> AsyncIterator[Connection]:
        """Lend a connection in a transaction, for what was worked out in *history*: it is written in no other.

        Raises StoreUnavailableError where the database goes on with another one by now.
        """
        async with self.transaction() as connection:
            if self.history is not history:
                raise StoreUnavailableError(_ANOTHER_HISTORY)
            yield connection

    @asynccontextmanager
    async def looking(self, seconds_max: float = LOOK_SECONDS_MAX) -> AsyncIterator[Connection]:
        """Lend a connection for looks that must hurt nobody: it only reads, on one core, in bounded time.

        Raises LookTooLongError where a statement takes longer than *seconds_max*.
        """
        async with self.transaction() as connection:
            # One statement: with a pooler in between a setting is the transaction's, or it is somebody else's.
            await connection.execute(_LOOK, {"milliseconds": str(round(seconds_max * 1_000))})
            try:
                yield connection
            except psycopg.errors.QueryCanceled as error:
                raise LookTooLongError(seconds_max) from error

    async def connect_dedicated(self) -> Connection:
        """Open a connection outside the pool, in autocommit mode; the caller closes it."""
        if self._is_cut:
            raise StoreUnavailableError("this way to the store is closed")
        connection = await connect(self._config)
        self._keep_dedicated(connection)
        try:
            with store_failures():
                await self._check(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    def connect_blocking(self) -> BlockingConnection:
        """Open a connection outside the pool, for a thread that waits for what it asks; the caller closes it."""
        if self._is_cut:
            raise StoreUnavailableError("this way to the store is closed")
        connection = connect_blocking(self._config)
        # Before it is compared: should the store turn to another history after that, it is cut with the others.
        self._keep_dedicated(connection)
        self._cut_if_late(connection)
        try:
            with store_failures():
                self._check_blocking(connection)
        except BaseException:
            connection.close()
            raise
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
        self._cut_dedicated()

    def _keep_dedicated(self, connection: Connection | BlockingConnection) -> None:
        with self._dedicated_lock:
            self._dedicated.add(connection)

    def _cut_dedicated(self) -> None:
        with self._dedicated_lock:
            # Threads open some of them.
            dedicated = list(self._dedicated)
        for connection in dedicated:
            cut(connection)

    async def close(self) -> None:
        """Close the pool; what is lent is closed when it comes back."""
        await self._pool.close()
