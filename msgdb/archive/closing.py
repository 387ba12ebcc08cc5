"""Closing a day: waiting until nothing more comes for it, and noting what there is.

A message gets its time under its queue's append lock, which is held until the commit is done: on this server, and on
the standbys that it waits for. So whoever stored before midnight held that lock at midnight. Once it was free after
midnight, all that the queue has of the day is there to be seen. The lock is asked for as readers do, for no longer than
it takes to see that it is free: appends go on.

A row of `dead_letter` gets its time from the clock while its writer holds the table's lock. Whoever writes the table
when it is first looked at after midnight is waited for, and nobody has to wait for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from psycopg import errors, sql

from msgbroker.contract.errors import DayStillOpenError, RunLostError, ThingNotFoundError
from msgdb.archive.day_rows import check_over, day_is_there, get_archivable, is_stored, table_of_day
from msgdb.archive.differences import get_archived_ids
from msgdb.archive.noting import LEASE_STANDS, begin_noting
from msgdb.archive.open_writers import describe_queue, find_append_holder, wait_for_writers
from msgdb.archive.records import ArchiveRange, ArchiveRun, ClosedDay
from msgdb.day_tables import DayTable
from msgdb.locks import QUEUE_LOCK_CLASS, queue_lock_key
from msgdb.log.partitions import day_bounds
from msgdb.postgres.connections import Connection
from msgdb.postgres.history import TIMELINE

WAIT_SECONDS: Final = 3.0
"""How long somebody who is in the middle of writing is waited for, by default."""
_QUEUES_AT_ONCE: Final = 300
"""How many append locks are asked for at once: they are in memory that all sessions of the server share."""

# A loose index scan: one probe of the primary key for each queue that has messages of the day, whether or not it has a
# row in `queue` any more.
_QUEUES_OF: Final = """
WITH RECURSIVE found (queue_id) AS (
    (SELECT m.queue_id FROM {partition} m ORDER BY m.queue_id LIMIT 1)
    UNION ALL
    SELECT (SELECT m.queue_id FROM {partition} m WHERE m.queue_id > f.queue_id ORDER BY m.queue_id LIMIT 1)
    FROM found f WHERE f.queue_id IS NOT NULL
)
SELECT queue_id FROM found WHERE queue_id IS NOT NULL
"""
# With the queues that have nothing of the day yet: their first message may be on its way.
_LIST_QUEUES: Final = f"{_QUEUES_OF} UNION SELECT queue_id FROM queue ORDER BY queue_id"

# Each statement is a transaction: the locks are gone when it ends. First without waiting for anybody, so that nobody
# who waits for one of these queues waits for another's; then one by one for those that are left.
_FIND_HELD: Final = f"""
SELECT w.queue_id FROM unnest(%(queue_ids)s::bigint[], %(keys)s::integer[]) AS w (queue_id, key)
WHERE NOT pg_try_advisory_xact_lock_shared({QUEUE_LOCK_CLASS}, w.key)
"""
_WAIT_FOR: Final = f"""
SELECT set_config('lock_timeout', %s, true), pg_advisory_xact_lock_shared({QUEUE_LOCK_CLASS}, %s)
"""

# In a statement of its own after the locks: its snapshot is younger than the last commit of whoever held them. What was
# written then lies before the position that it notes.
_CLOSE: Final = f"""
UPDATE archive_run
SET closed_at = clock_timestamp(), closed_lsn = pg_current_wal_insert_lsn()::text, timeline = {TIMELINE}
WHERE run_id = %(run_id)s AND state = 'RUNNING' AND {LEASE_STANDS}
RETURNING timeline, closed_at, closed_lsn
"""
_FORGET_RANGES: Final = "DELETE FROM archive_range WHERE run_id = %(run_id)s"
_NOTE: Final = """
INSERT INTO archive_range (run_id, queue_id, first_offset, last_offset, last_message_id)
"""
_RETURNING: Final = "RETURNING queue_id, first_offset, last_offset, last_message_id"
# Two probes of the partition's primary key for each queue.
_NOTE_QUEUES: Final = f"""
{_NOTE}
SELECT %(run_id)s, q.queue_id, first.queue_offset, last.queue_offset, last.message_id
FROM ({_QUEUES_OF}) AS q
CROSS JOIN LATERAL (
    SELECT m.queue_offset FROM {{partition}} m WHERE m.queue_id = q.queue_id ORDER BY m.queue_offset LIMIT 1
) AS first
CROSS JOIN LATERAL (
    SELECT m.queue_offset, m.message_id FROM {{partition}} m WHERE m.queue_id = q.queue_id
    ORDER BY m.queue_offset DESC LIMIT 1
) AS last
{_RETURNING}
"""
# By the index on the time, one day of it. MATERIALIZED, or the smallest id would be looked for along the primary key,
# past all the rows of earlier days. What is left of the rows that a supplement's base has is none of the supplement's.
_NOTE_ROWS: Final = f"""
WITH of_day AS MATERIALIZED (
    SELECT t.id FROM {{partition}} t
    WHERE t.{{time}} >= %(first)s AND t.{{time}} < %(end)s AND t.id + 0 > %(base_last)s
), ends AS (
    SELECT min(id) AS first_id, max(id) AS last_id FROM of_day
)
{_NOTE}
SELECT %(run_id)s, 0, e.first_id, e.last_id, t.message_id FROM ends e JOIN {{partition}} t ON t.id = e.last_id
{_RETURNING}
"""


async def close_day(conn: Connection, run: ArchiveRun, *, wait_seconds: float = WAIT_SECONDS) -> ClosedDay:
    """Wait until nothing more comes for the run's day, *wait_seconds* for each who writes; note what there is of it.

    On a connection in autocommit mode: it is several transactions, of which the last one notes all. Done again, it
    notes what there is then.

    Raises DayStillOpenError with the name of who writes, RunLostError, or ThingNotFoundError where the store has no
    such day any more.
    """
    table = get_archivable(run.table)
    await check_over(conn, table, run.day)
    with day_is_there(run.table, run.day):
        if table.is_partitioned:
            if not await is_stored(conn, table, run.day):
                raise ThingNotFoundError(f"day of {run.table}", f"{run.day}")
            await _wait_for_appends(conn, table, run, wait_seconds)
        else:
            await wait_for_writers(conn, table, run.day, wait_seconds=wait_seconds)
        return await _note(conn, table, run)


async def _wait_for_appends(conn: Connection, table: DayTable, run: ArchiveRun, wait_seconds: float) -> None:
    """See the append lock of every queue free. Raises DayStillOpenError where one is not free in time."""
    statement = sql.SQL(_LIST_QUEUES).format(partition=sql.Identifier(table_of_day(table, run.day)))
    queue_ids = [row[0] for row in await (await conn.execute(statement)).fetchall()]
    for first in range(0, len(queue_ids), _QUEUES_AT_ONCE):
        some = queue_ids[first : first + _QUEUES_AT_ONCE]
        for queue_id in await _find_held(conn, some):
            await _wait_for_append(conn, run, queue_id, wait_seconds)


async def _find_held(conn: Connection, queue_ids: Sequence[int]) -> list[int]:
    parameters = {"queue_ids": queue_ids, "keys": [queue_lock_key(queue_id) for queue_id in queue_ids]}
    return [row[0] for row in await (await conn.execute(_FIND_HELD, parameters)).fetchall()]


async def _wait_for_append(conn: Connection, run: ArchiveRun, queue_id: int, wait_seconds: float) -> None:
    try:
        # 0 would be: for as long as it takes.
        milliseconds = max(1, round(wait_seconds * 1_000))
        await conn.execute(_WAIT_FOR, (f"{milliseconds}", queue_lock_key(queue_id)))
    except (errors.LockNotAvailable, errors.QueryCanceled) as error:
        # The session may have a limit of its own.
        thing = await describe_queue(conn, queue_id)
        holder = await find_append_holder(conn, queue_id)
        raise DayStillOpenError(run.table, f"{run.day}", f"{thing} is being appended to by {holder}") from error


async def _note(conn: Connection, table: DayTable, run: ArchiveRun) -> ClosedDay:
    partition = table_of_day(table, run.day)
    first, end = day_bounds(run.day)
    note = sql.SQL(_NOTE_QUEUES if table.is_partitioned else _NOTE_ROWS).format(
        partition=sql.Identifier(partition), time=sql.Identifier(table.time_column)
    )
    parameters: dict[str, object] = {"run_id": run.run_id, "first": first, "end": end}
    if not table.is_partitioned:
        parameters["base_last"] = (
            -1 if run.base_run_id is None else (await get_archived_ids(conn, run.base_run_id)).last
        )
    async with conn.transaction():
        await begin_noting(conn)
        closed = await (await conn.execute(_CLOSE, parameters)).fetchone()
        if closed is None:
            raise RunLostError(f"{run.run_id}")
        await conn.execute(_FORGET_RANGES, parameters)
        rows = await (await conn.execute(note, parameters)).fetchall()
    ranges = tuple(sorted(map(ArchiveRange._make, rows)))
    return ClosedDay(ranges, partition, *closed)
