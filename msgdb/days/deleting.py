"""Deleting a day's rows from among those of other days: in batches, so that no transaction is long or large.

Whoever else is at a row is not waited for. What was deleted lies where it was until autovacuum comes for it: so each
batch begins where the one before it ended, and does not pass over that again.

What a run has may go whatever is required meanwhile. Where that is not what permits it, each batch asks anew: the
archive may have become required since the one before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from psycopg import sql

from msgdb.archive.differences import ArchivedIds
from msgdb.archive.permits import Granted, permit
from msgdb.archive.stored_days import StoredDay
from msgdb.log.partitions import day_bounds
from msgdb.postgres.connections import Connection

BATCH_ROWS: Final = 5_000
_ANY_ROW: Final = ArchivedIds(0, 2**63 - 1)

# Index: of the time column, and not the primary key, from which a prepared plan would expect as little. What it finds
# is deleted where it lies, and stays there until then, because it is locked.
DELETE: Final = """
WITH deleted AS (
    DELETE FROM {table} WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM {table}
        WHERE {time} >= %(since)s AND {time} < %(day_end)s AND id + 0 BETWEEN %(first_id)s AND %(last_id)s
        ORDER BY {time} LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ))
    RETURNING {time} AS at
)
SELECT count(*), max(at) FROM deleted
"""


async def delete_rows(
    conn: Connection, stored: StoredDay, ids: ArchivedIds | None, *, is_time_over: Callable[[], bool]
) -> tuple[int, bool]:
    """Delete the day's rows (of these *ids*, if there are some), at least a batch, until the time is over.

    In autocommit mode: each batch is a transaction. Returns how many there were, and whether the end was reached, or
    the rest is not permitted any more.
    """
    table, time = sql.Identifier(stored.table.name), sql.Identifier(stored.table.time_column)
    statement = sql.SQL(DELETE).format(table=table, time=time)
    since, day_end = day_bounds(stored.day)
    first_id, last_id = ids or _ANY_ROW
    parameters = {"day_end": day_end, "first_id": first_id, "last_id": last_id, "limit": BATCH_ROWS}
    count = 0
    while True:
        async with conn.transaction():
            if ids is None and await permit(conn, stored) != Granted():
                return count, True
            row = await (await conn.execute(statement, {**parameters, "since": since})).fetchone()
        assert row is not None, "it is one row"
        count += row[0]
        if row[0] < BATCH_ROWS:
            return count, True
        if is_time_over():
            return count, False
        since = row[1]
