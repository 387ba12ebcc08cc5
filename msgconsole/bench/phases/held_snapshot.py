"""A session that keeps a transaction with a snapshot open, as a backup or a forgotten session does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg
from psycopg import IsolationLevel


@contextlib.contextmanager
def held_snapshot(url: str) -> Iterator[None]:
    """Hold a snapshot of the database at *url* while the block lasts."""
    with psycopg.connect(url) as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT count(*) FROM queue")
        yield
        connection.rollback()
