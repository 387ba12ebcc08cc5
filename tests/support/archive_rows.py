"""What the archive's job would have written of days and runs, put straight into the tables."""

from __future__ import annotations

from datetime import date
from uuid import UUID, uuid4

from psycopg import sql

from msgdb.archive.records import DayState, RunState
from msgdb.archive.stored_days import StoredDay
from msgdb.log.partitions import day_bounds
from msgdb.names import DEAD_LETTER, MESSAGE
from msgdb.postgres.connections import Connection

_PUT_RUN = """
INSERT INTO archive_run (run_id, table_name, day, state, holder, lease_until)
VALUES (%s, %s, %s, %s, 'etl-1', clock_timestamp() + %s * interval '1 second')
"""
_PUT_DAY = """
INSERT INTO archive_day (table_name, day, state, run_id, reason) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (table_name, day) DO UPDATE SET state = excluded.state, run_id = excluded.run_id, reason = excluded.reason
"""
_RANGES = {
    MESSAGE: """
        INSERT INTO archive_range (run_id, queue_id, first_offset, last_offset, last_message_id, row_count)
        SELECT %(run_id)s, queue_id, min(queue_offset), max(queue_offset),
               (array_agg(message_id ORDER BY queue_offset DESC))[1], count(*)
        FROM {source} WHERE stored_at >= %(first)s AND stored_at < %(end)s GROUP BY queue_id
    """,
    DEAD_LETTER: """
        INSERT INTO archive_range (run_id, queue_id, first_offset, last_offset, last_message_id, row_count)
        SELECT %(run_id)s, 0, min(id), max(id), (array_agg(message_id ORDER BY id DESC))[1], count(*)
        FROM {source} WHERE died_at >= %(first)s AND died_at < %(end)s HAVING count(*) > 0
    """,
}


async def require_archive(conn: Connection, table: str, from_day: date = date(2020, 1, 1)) -> None:
    """Let days of *table* from this one on be dropped only once they are archived."""
    await conn.execute(
        "INSERT INTO archive_policy (table_name, required_from) VALUES (%s, %s)"
        " ON CONFLICT (table_name) DO UPDATE SET required_from = excluded.required_from",
        (table, from_day),
    )


async def stop_requiring(conn: Connection, table: str) -> None:
    """Let its days be dropped without."""
    await conn.execute("DELETE FROM archive_policy WHERE table_name = %s", (table,))


async def put_run(
    conn: Connection, table: str, day: date, state: RunState = RunState.VERIFIED, *, lease_seconds: float = -1.0
) -> UUID:
    """Put a run of the day, and return its id."""
    run_id = uuid4()
    await conn.execute(_PUT_RUN, (run_id, table, day, state, lease_seconds))
    return run_id


async def put_day(
    conn: Connection, table: str, day: date, state: DayState, *, run_id: UUID | None = None, reason: str | None = None
) -> None:
    """Let the day be in this state."""
    await conn.execute(_PUT_DAY, (table, day, state, run_id, reason))


async def archive(conn: Connection, stored: StoredDay) -> UUID:
    """Let a verified run have the day as it is now; return the run's id."""
    table = stored.table.name
    run_id = await put_run(conn, table, stored.day)
    first, end = day_bounds(stored.day)
    source = sql.Identifier(table if stored.partition is None else stored.partition.name)
    await conn.execute(sql.SQL(_RANGES[table]).format(source=source), {"run_id": run_id, "first": first, "end": end})
    await put_day(conn, table, stored.day, DayState.ARCHIVED, run_id=run_id)
    return run_id


async def state_of(conn: Connection, table: str, day: date) -> tuple[str | None, str | None]:
    """Return the day's state and the reason for it; nothing where nothing is noted."""
    cursor = await conn.execute(
        "SELECT state, reason FROM archive_day WHERE table_name = %s AND day = %s", (table, day)
    )
    row = await cursor.fetchone()
    return (None, None) if row is None else (row[0], row[1])
