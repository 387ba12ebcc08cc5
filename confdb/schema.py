"""Bring a database to a version of confdb's schema. Synchronous: migrations run before anything else does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

VERSION_TABLE: Final = "confdb_version"

_MIGRATION_LOCK: Final = 1_297_237_583
_LOCK_WAIT: Final = "60s"


def upgrade(url: str, revision: str = "head") -> None:
    """Bring the database to *revision*; a repeat changes nothing."""
    with _alembic(url) as config:
        command.upgrade(config, revision)


def downgrade(url: str, revision: str) -> None:
    """Take the database back to *revision* (`base`: no table is left)."""
    with _alembic(url) as config:
        command.downgrade(config, revision)


def find_revision(url: str) -> str | None:
    """Return the revision the database is at, or None where there is no schema."""
    with _connect(url) as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        return context.get_current_revision()


def script_location() -> Path:
    """Return the directory of the migrations: inside the package when installed, at the top of a checkout."""
    here = Path(__file__).resolve().parent
    packaged = here / "migrations"
    return packaged if packaged.is_dir() else here.parent / "migrations" / "confdb"


@contextmanager
def _alembic(url: str) -> Iterator[Config]:
    config = Config()
    config.set_main_option("script_location", str(script_location()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    # On a connection of its own, so that migrations may commit as they need. In a transaction, so that it also works
    # behind a pooler: whoever migrates at the same time waits, and then finds nothing to do.
    with _connect(url) as guard, _connect(url) as connection:
        guard.exec_driver_sql(f"SET LOCAL lock_timeout = '{_LOCK_WAIT}'")
        guard.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
        config.attributes["connection"] = connection
        config.attributes["version_table"] = VERSION_TABLE
        yield config


@contextmanager
def _connect(url: str) -> Iterator[Connection]:
    # libpq reads its URL itself: SQLAlchemy's own parser does not know all of them (several hosts, service files).
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(url, connect_timeout=3, prepare_threshold=None),
        poolclass=NullPool,
        use_native_hstore=False,
        isolation_level="READ COMMITTED",
    )
    with engine.connect() as connection:
        yield connection
