"""The session of append transactions: a connection whose limits free its locks should the broker freeze.

Behind a pooler there is no session to keep anything on: settings are those of each transaction, nothing is prepared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import psycopg
import structlog

from msgdb.append import sql
from msgdb.append.plan import AppendFrame
from msgdb.postgres.connections import BlockingConnection
from msgdb.postgres.failures import store_failures
from msgdb.postgres.libpq import execute

log = structlog.get_logger(__name__)

_QUICK_BYTES: Final = 512 * 1024
"""How many bytes are there in time on any way to the server that is worth being used."""
_BYTES_PER_SECOND_MIN: Final = 256 * 1024
_ELSEWHERE: Final = frozenset({"GetNewTransactionId", "GetNewMultiXactId"})
"""What PostgreSQL warns of there has nothing to do with the commit: its transaction ids run out."""


@dataclass(frozen=True, slots=True)
class AppendConfig:
    """How long an append transaction waits for locks and for the server."""

    timeout_seconds: float = 2.0
    """How long each statement (all locks are one) may take, and the session between them: a frozen broker is cut off
    after it."""
    lock_timeout_seconds: float = 1.0
    """How long an append waits for a lock; then the frames that need it are answered as held, and the others are
    stored."""
    held_seconds_max: float = 2.0
    """A holder that has not moved for longer is ended by whoever waits for it."""
    pooled: bool = False
    """Whether a transaction-pooling PgBouncer is in between: settings go with each transaction, not with the session.
    """


class AppendSession:
    """The connection on which frames are stored, as long as it is alive, and what goes for all that is done on it."""

    def __init__(self, connect: Callable[[], BlockingConnection], config: AppendConfig) -> None:
        self._connect = connect
        self._connection: BlockingConnection | None = None
        self._timeout_seconds = config.timeout_seconds
        settings = sql.session_settings(
            timeout_seconds=config.timeout_seconds,
            lock_timeout_seconds=config.lock_timeout_seconds,
            local=config.pooled,
        )
        self._session_settings = "" if config.pooled else settings
        self._transaction_settings = settings if config.pooled else ""
        self.has_prepared = not config.pooled
        """Whether the look at the tails is a prepared statement."""
        self.warning = ""
        """What the server has warned of, on this connection and lately."""

    def connection(self) -> BlockingConnection:
        """Return the connection; make one, where there is none that is alive. Raises StoreUnavailableError."""
        if self._connection is not None and not self._connection.closed:
            return self._connection
        with store_failures():
            connection = self._connection = self._connect()
            connection.add_notice_handler(self._take_notice)
            if self.has_prepared:
                self._prepare(connection)
        return connection

    def settings_for(self, frames: Sequence[AppendFrame]) -> str:
        """Return the settings of a transaction that stores *frames*, or tries to.

        Much data has more time: on a slow way it would be cut off in the middle, each time anew.
        """
        size_bytes = sum(frame.size_bytes for frame in frames)
        if size_bytes <= _QUICK_BYTES:
            return self._transaction_settings
        seconds = self._timeout_seconds + size_bytes / _BYTES_PER_SECOND_MIN
        allowance = f"SET LOCAL statement_timeout = {int(seconds * 1_000)}"
        return f"{self._transaction_settings}; {allowance}" if self._transaction_settings else allowance

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _prepare(self, connection: BlockingConnection) -> None:
        try:
            execute(connection, f"{self._session_settings}; {sql.PREPARE_TAILS}")
        except BaseException:
            self.close()
            raise

    def _take_notice(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING" and notice.source_function not in _ELSEWHERE:
            self.warning = notice.message_primary or "of something"
            log.warning("append.server_warned", warning=self.warning)
