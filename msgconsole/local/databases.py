"""The two databases as commands use them: whatever goes wrong with one becomes one of our errors.

That is wider than what a broker translates: it ends by an error that it does not know, with a traceback for its log;
whoever has typed a command gets a sentence.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, NoReturn

import psycopg
import sqlalchemy.exc
from alembic.util import CommandError
from psycopg import errors

import confdb.schema
import msgdb.schema
from confdb.store import ConfigStore
from msgbroker.contract.errors import (
    ConfigUnavailableError,
    DatabaseRefusedError,
    NotMigratedError,
    SchemaNotKnownError,
    StoreUnavailableError,
)
from msgdb.store import MessageStore

_UNAVAILABLE: Final = {
    "the configuration database": ConfigUnavailableError,
    "the message store": StoreUnavailableError,
}
_CONFDB, _MSGDB = _UNAVAILABLE


@asynccontextmanager
async def open_config_store(url: str) -> AsyncIterator[ConfigStore]:
    """Give the configuration database until the block ends."""
    with _failures_of(_CONFDB):
        async with ConfigStore.open(url) as store:
            yield store


@asynccontextmanager
async def open_message_store(url: str) -> AsyncIterator[MessageStore]:
    """Give the message store until the block ends."""
    with _failures_of(_MSGDB, uses_sqlalchemy=False):
        async with MessageStore.open(url, pool_size=1) as store:
            yield store


def upgrade(confdb_url: str, msgdb_url: str) -> None:
    """Bring both databases to the newest schema."""
    with _failures_of(_CONFDB):
        confdb.schema.upgrade(confdb_url)
    with _failures_of(_MSGDB):
        msgdb.schema.upgrade(msgdb_url)


def current_revisions(confdb_url: str, msgdb_url: str) -> list[tuple[str, str, str | None]]:
    """Return name, URL and revision of each."""
    with _failures_of(_CONFDB):
        config_revision = confdb.schema.find_revision(confdb_url)
    with _failures_of(_MSGDB):
        message_revision = msgdb.schema.find_revision(msgdb_url)
    return [("confdb", confdb_url, config_revision), ("msgdb", msgdb_url, message_revision)]


def confdb_state(url: str) -> str:
    """Return in words what is at *url*; raise ConfigUnavailableError if nothing answers."""
    with _failures_of(_CONFDB):
        return _state(_server_version(url), confdb.schema.find_revision(url))


def msgdb_state(url: str) -> str:
    """Return in words what is at *url*; raise StoreUnavailableError if nothing answers."""
    with _failures_of(_MSGDB):
        return _state(_server_version(url), msgdb.schema.find_revision(url))


def _server_version(url: str) -> int:
    with psycopg.connect(url, connect_timeout=3) as connection:
        return connection.info.server_version // 10_000


def _state(server_version: int, revision: str | None) -> str:
    schema = f"schema {revision}" if revision else "no schema yet: msgcenter migrate"
    return f"PostgreSQL {server_version}, {schema}"


@contextmanager
def _failures_of(database: str, *, uses_sqlalchemy: bool = True) -> Iterator[None]:
    """Translate what fails of a database. One that is asked without SQLAlchemy leaves its errors to the other one."""
    try:
        yield
    except CommandError as error:
        raise SchemaNotKnownError(database, _in_one_line(error)) from error
    except sqlalchemy.exc.DBAPIError as error:
        if not uses_sqlalchemy:
            raise
        _raise_translated(database, error.orig or error)
    except psycopg.Error as error:
        _raise_translated(database, error)
    except UnicodeEncodeError as error:
        # What was typed in another encoding: Python keeps its bytes as surrogates, which no database takes.
        raise DatabaseRefusedError(database, f"text that is not Unicode: {error.object[:80]!r}") from error


def _raise_translated(database: str, error: BaseException) -> NoReturn:
    if isinstance(error, (errors.UndefinedTable, errors.UndefinedColumn)):
        raise NotMigratedError(database) from error
    if isinstance(error, (psycopg.OperationalError, errors.ReadOnlySqlTransaction)):
        raise _UNAVAILABLE[database](_in_one_line(error)) from error
    raise DatabaseRefusedError(database, _in_one_line(error)) from error


def _in_one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
