"""Waiting for the database to show something."""

from __future__ import annotations

from msgdb.postgres.connections import Connection

_WAITING = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


async def until_someone_waits_for_a_lock(conn: Connection, how_many: int = 1) -> None:
    """Return when so many sessions of this database wait for locks."""
    waiting_count = 0
    while waiting_count < how_many:
        row = await (await conn.execute(_WAITING)).fetchone()
        waiting_count = 0 if row is None else row[0]
