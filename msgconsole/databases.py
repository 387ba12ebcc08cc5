"""The two databases' schemas, for commands: failures to reach one become our errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import sqlalchemy.exc

import confdb.schema
import msgdb.schema
from msgbroker.contract.errors import ConfigUnavailableError, StoreUnavailableError


def upgrade(confdb_url: str, msgdb_url: str) -> None:
    """Bring both databases to the newest schema."""
    with _failures_of(ConfigUnavailableError):
        confdb.schema.upgrade(confdb_url)
    with _failures_of(StoreUnavailableError):
        msgdb.schema.upgrade(msgdb_url)


def current_revisions(confdb_url: str, msgdb_url: str) -> list[tuple[str, str, str | None]]:
    """Return name, URL and revision of each."""
    with _failures_of(ConfigUnavailableError):
        config_revision = confdb.schema.current(confdb_url)
    with _failures_of(StoreUnavailableError):
        message_revision = msgdb.schema.current(msgdb_url)
    return [("confdb", confdb_url, config_revision), ("msgdb", msgdb_url, message_revision)]


def confdb_state(url: str) -> str:
    """Return in words what is at *url*; raise ConfigUnavailableError if nothing answers."""
    with _failures_of(ConfigUnavailableError):
        return _state(_server_version(url), confdb.schema.current(url))


def msgdb_state(url: str) -> str:
    """Return in words what is at *url*; raise StoreUnavailableError if nothing answers."""
    with _failures_of(StoreUnavailableError):
        return _state(_server_version(url), msgdb.schema.current(url))


def _server_version(url: str) -> int:
    with psycopg.connect(url, connect_timeout=3) as connection:
        return connection.info.server_version // 10_000


def _state(server_version: int, revision: str | None) -> str:
    schema = f"schema {revision}" if revision else "no schema yet: msgcenter migrate"
    return f"PostgreSQL {server_version}, {schema}"


@contextmanager
def _failures_of(kind: type[ConfigUnavailableError | StoreUnavailableError]) -> Iterator[None]:
    try:
        yield
    except (psycopg.OperationalError, sqlalchemy.exc.OperationalError) as error:
        cause = getattr(error, "orig", None) or error
        raise kind(str(cause).strip().replace("\n", " ")) from error
