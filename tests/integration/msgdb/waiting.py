"""Waiting for the database to show something."""

from __future__ import annotations

from msgdb.connections import Connection

_SOMEONE_WAITS = """
SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


async def until_someone_waits_for_a_lock(conn: Connection) -> None:
    """Return when some session of this database waits for a lock."""
    while await (await conn.execute(_SOMEONE_WAITS)).fetchone() is None:
        continue
