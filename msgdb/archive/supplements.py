"""Supplements: runs that add what came for a day after it was dropped.

A manifest is always the whole day, and what was dropped can be read from the store no more: a run of what came later
lists the files of the run before it, its base. Rows that are deleted among those of other days may be gone in part:
then, too, the run before is the base, and what is left of its rows is none of the new run's.
"""

from __future__ import annotations

from datetime import date
from typing import Final
from uuid import UUID

from psycopg import sql

from msgdb.archive.day_rows import table_of_day
from msgdb.day_tables import DayTable
from msgdb.log.partitions import day_bounds
from msgdb.postgres.connections import Connection

_BASE_OF: Final = "SELECT base_run_id FROM archive_run WHERE run_id = %s"

# Whether a row of the run's own ranges is still there: one probe of the primary key for each of its queues, until one
# is found. Offsets and ids are never given out twice, so what came after a drop is none of them.
_IS_MESSAGE_THERE: Final = """
SELECT EXISTS (
    SELECT 1 FROM archive_range r
    WHERE r.run_id = %(run_id)s AND EXISTS (
        SELECT 1 FROM {table} m
        WHERE m.queue_id = r.queue_id AND m.queue_offset BETWEEN r.first_offset AND r.last_offset
    )
)
"""
# Index: of the time column, a day of it, and not the primary key, along which a day's ids may lie among many others.
_ARE_ROWS_THERE: Final = """
SELECT EXISTS (
    SELECT 1 FROM archive_range r
    WHERE r.run_id = %(run_id)s AND coalesce(r.row_count, 1) <= (
        SELECT count(*) FROM {table} t
        WHERE t.{time} >= %(first)s AND t.{time} < %(end)s AND t.id + 0 BETWEEN r.first_offset AND r.last_offset
    )
)
"""


async def find_base(conn: Connection, table: DayTable, day: date, *, run_id: UUID) -> UUID | None:
    """Return the run whose files a new run of the day has to list, too; None where the store has the whole day.

    *run_id* is what the day is archived by so far. It is the base if what it read is gone, or some of it. That is
    looked for, not read off the day's state, which may have changed since: listing too few files would lose messages.
    """
    if not await _has_rows_of(conn, table, day, run_id):
        return run_id
    row = await (await conn.execute(_BASE_OF, (run_id,))).fetchone()
    return None if row is None else row[0]


async def _has_rows_of(conn: Connection, table: DayTable, day: date, run_id: UUID) -> bool:
    first, end = day_bounds(day)
    statement = sql.SQL(_IS_MESSAGE_THERE if table.is_partitioned else _ARE_ROWS_THERE).format(
        table=sql.Identifier(table_of_day(table, day)), time=sql.Identifier(table.time_column)
    )
    row = await (await conn.execute(statement, {"run_id": run_id, "first": first, "end": end})).fetchone()
    return row == (True,)
