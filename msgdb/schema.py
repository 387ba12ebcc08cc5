"""Brings a message store to a revision of its schema, by Alembic, without a configuration file.

The scripts are in `migrations/msgdb` of a checkout, and inside this package in an installed wheel.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, NullPool, create_engine

from msgdb.locks import MIGRATION_LOCK_CLASS

VERSION_TABLE: Final = "msgdb_version"
_CONNECT_TIMEOUT_SECONDS: Final = 10
_ASKED_AGAIN_SECONDS: Final = 0.1


def upgrade(url: str, revision: str = "head") -> None:
    """Migrate the store at *url* up to *revision*; a second caller waits, and finds nothing to do."""
    with _guarded(url), _connected(url) as connection:
        command.upgrade(_config(connection), revision)


def downgrade(url: str, revision: str) -> None:
    """Migrate the store at *url* down to *revision* (`base` is before the first)."""
    with _guarded(url), _connected(url) as connection:
        command.downgrade(_config(connection), revision)


def find_revision(url: str) -> str | None:
    """Return the revision of the store at *url*; None if it was never migrated."""
    with _connected(url) as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        return context.get_current_revision()


def _script_directory() -> Path:
    packaged = Path(__file__).parent / "migrations"
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / "migrations" / "msgdb"


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_script_directory()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    config.attributes["version_table"] = VERSION_TABLE
    return config


@contextmanager
def _connected(url: str) -> Iterator[Connection]:
    # libpq reads its URL itself: SQLAlchemy's own parser does not know all of them (several hosts, service files).
    engine = create_engine(
        "postgresql+psycopg://",
        # Nothing may be prepared: a transaction pooler hands the next transaction to another session.
        creator=lambda: psycopg.connect(url, connect_timeout=_CONNECT_TIMEOUT_SECONDS, prepare_threshold=None),
        poolclass=NullPool,
        use_native_hstore=False,
        isolation_level="READ COMMITTED",
    )
    with engine.connect() as connection:
        yield connection


@contextmanager
def _guarded(url: str) -> Iterator[None]:
    # The lock sits in a transaction of its own connection: migrations may need several transactions, and a lock of the
    # session would not survive a pooler. Whoever holds it, or waits for it, must hold no snapshot meanwhile, or CREATE
    # INDEX CONCURRENTLY would wait for that: no parameters (in the extended protocol the statement's portal would keep
    # its snapshot), and it is asked for again and again.
    with psycopg.connect(url, connect_timeout=_CONNECT_TIMEOUT_SECONDS, prepare_threshold=None) as guard:
        while not _has_lock(guard):
            guard.rollback()
            time.sleep(_ASKED_AGAIN_SECONDS)
        yield


def _has_lock(guard: psycopg.Connection[Any]) -> bool:
    row = guard.execute(f"SELECT pg_try_advisory_xact_lock({MIGRATION_LOCK_CLASS}, 0)").fetchone()
    return row is not None and bool(row[0])
