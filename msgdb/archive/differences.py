"""What a day has, held against what its run has of it: whether anything is there that the archive does not have."""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from psycopg import sql

from msgdb.archive.day_rows import has_rows
from msgdb.archive.stored_days import StoredDay
from msgdb.log.partitions import DayPartition, day_bounds
from msgdb.postgres.connections import Connection

_SHOWN_MAX: Final = 3

# Index: the partition's primary key, a few probes for each queue that has something in it. The last message's id is
# compared, too: after a promotion that lost the log's end the same offsets may have other messages.
_DIFFERING_QUEUES: Final = """
WITH RECURSIVE found AS (
    (SELECT m.queue_id FROM {partition} m ORDER BY m.queue_id LIMIT 1)
    UNION ALL
    SELECT (SELECT m.queue_id FROM {partition} m WHERE m.queue_id > f.queue_id ORDER BY m.queue_id LIMIT 1)
    FROM found f WHERE f.queue_id IS NOT NULL
), stored AS (
    SELECT f.queue_id, first.queue_offset AS first_offset, last.queue_offset AS last_offset, last.message_id
    FROM found f
    CROSS JOIN LATERAL (
        SELECT m.queue_offset FROM {partition} m WHERE m.queue_id = f.queue_id ORDER BY m.queue_offset LIMIT 1
    ) AS first
    CROSS JOIN LATERAL (
        SELECT m.queue_offset, m.message_id FROM {partition} m WHERE m.queue_id = f.queue_id
        ORDER BY m.queue_offset DESC LIMIT 1
    ) AS last
), archived AS (
    SELECT r.queue_id, r.first_offset, r.last_offset, r.last_message_id AS message_id
    FROM archive_range r WHERE r.run_id = %(run_id)s
)
SELECT queue_id, s.first_offset, s.last_offset, a.first_offset, a.last_offset
FROM stored s FULL JOIN archived a USING (queue_id)
WHERE (s.first_offset, s.last_offset, s.message_id) IS DISTINCT FROM (a.first_offset, a.last_offset, a.message_id)
ORDER BY queue_id
LIMIT %(limit)s
"""

# With those of the runs that a supplement adds to: of their rows some may be left.
_ARCHIVED_IDS: Final = """
WITH RECURSIVE listed AS (
    SELECT run_id, base_run_id FROM archive_run WHERE run_id = %s
    UNION ALL
    SELECT b.run_id, b.base_run_id FROM listed l JOIN archive_run b ON b.run_id = l.base_run_id
)
SELECT min(r.first_offset), max(r.last_offset), (array_agg(r.last_message_id ORDER BY r.last_offset DESC))[1],
       sum(r.row_count)::bigint
FROM listed l JOIN archive_range r ON r.run_id = l.run_id
HAVING count(*) > 0
"""
# Index: of the time column, a day of it. Fewer than were archived are in order: some may have been purged, or gone with
# a drop that was interrupted.
_COUNT_ROWS: Final = """
SELECT count(*), count(*) FILTER (WHERE id NOT BETWEEN %(first_id)s AND %(last_id)s),
       count(*) FILTER (WHERE id = %(last_id)s AND message_id <> %(message_id)s)
FROM {table} WHERE {time} >= %(first)s AND {time} < %(end)s
"""


class ArchivedIds(NamedTuple):
    """The rows that a run has of a day without a partition: those up to *last*; none if *first* is above it."""

    first: int
    last: int


async def get_archived_ids(conn: Connection, run_id: UUID) -> ArchivedIds:
    """Return what the run has of a day without a partition, with its bases."""
    row = await (await conn.execute(_ARCHIVED_IDS, (run_id,))).fetchone()
    return ArchivedIds(0, -1) if row is None else ArchivedIds(row[0], row[1])


async def find_difference(conn: Connection, stored: StoredDay, run_id: UUID) -> str:
    """Return in words what the day has that the run does not have, or the other way round; empty: nothing."""
    if stored.partition is not None:
        return await _between_queues(conn, stored.partition, run_id)
    return await _between_rows(conn, stored, run_id)


async def _between_queues(conn: Connection, partition: DayPartition, run_id: UUID) -> str:
    statement = sql.SQL(_DIFFERING_QUEUES).format(partition=sql.Identifier(partition.name))
    rows = await (await conn.execute(statement, {"run_id": run_id, "limit": _SHOWN_MAX + 1})).fetchall()
    shown = "; ".join(_in_words(*row) for row in rows[:_SHOWN_MAX])
    return shown + ("; and other queues" if len(rows) > _SHOWN_MAX else "")


def _in_words(
    queue_id: int, first: int | None, last: int | None, archived_first: int | None, archived_last: int | None
) -> str:
    here = "nothing" if first is None else f"{first} to {last}"
    there = "nothing" if archived_first is None else f"{archived_first} to {archived_last}"
    if here == there:
        return f"queue {queue_id} has {here} as it was archived, and another message at its end"
    return f"queue {queue_id} has {here}, and {there} was archived"


async def _between_rows(conn: Connection, stored: StoredDay, run_id: UUID) -> str:
    archived = await (await conn.execute(_ARCHIVED_IDS, (run_id,))).fetchone()
    if archived is None:
        return "there are rows, and nothing was archived" if await has_rows(conn, stored.table, stored.day) else ""
    first_id, last_id, message_id, row_count = archived
    first, end = day_bounds(stored.day)
    parameters = {"first": first, "end": end, "first_id": first_id, "last_id": last_id, "message_id": message_id}
    row = await (await conn.execute(_of_table(_COUNT_ROWS, stored), parameters)).fetchone()
    assert row is not None, "it is one row"
    count, outside_count, other_count = row
    if outside_count:
        return f"{outside_count} rows are outside of {first_id} to {last_id}, which were archived"
    if other_count:
        return f"row {last_id} is another one than that which was archived"
    return "" if count <= (row_count or 0) else f"there are {count} rows, and {row_count or 0} were archived"


def _of_table(statement: str, stored: StoredDay) -> sql.Composed:
    table, time = sql.Identifier(stored.table.name), sql.Identifier(stored.table.time_column)
    return sql.SQL(statement).format(table=table, time=time)
