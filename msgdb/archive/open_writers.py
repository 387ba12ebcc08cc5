"""Who is in the middle of writing: named where a day stays open because of them, and waited for."""

from __future__ import annotations

import asyncio
import time
from datetime import date
from typing import Final

from psycopg import sql

from msgbroker.contract.errors import DayStillOpenError
from msgdb.day_tables import DayTable
from msgdb.locks import QUEUE_LOCK_CLASS, queue_lock_key
from msgdb.postgres.connections import Connection

_LOOK_SECONDS: Final = 0.05
_OID_MASK: Final = 0xFFFFFFFF
_UNKNOWN: Final = "somebody who has just ended"

# Of whoever holds a lock: what an operator needs to find it. A transaction that was prepared has no session.
_HOLDER: Final = """
l.pid, a.application_name, a.client_addr::text, to_char(a.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'),
a.wait_event
"""
_FIND_APPEND_HOLDER: Final = f"""
SELECT {_HOLDER} FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.mode = 'ExclusiveLock'
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid = {QUEUE_LOCK_CLASS}::bigint::oid AND l.objid = %s::bigint::oid
LIMIT 1
"""
# What a statement that inserts holds until its transaction ends. Whoever comes later than the look began comes too late
# for the day.
_FIND_WRITERS: Final = f"""
SELECT l.virtualtransaction, {_HOLDER} FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'relation' AND l.granted AND l.mode = 'RowExclusiveLock' AND l.relation = {{table}}::regclass
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.pid IS DISTINCT FROM pg_backend_pid()
"""

# The topic's name is known from its messages only. Index: the primary keys, backwards.
_DESCRIBE: Final = """
SELECT q.topic_id, q.generation, q.ordinal, (
    SELECT m.topic FROM message m WHERE m.queue_id = %(queue_id)s ORDER BY m.queue_offset DESC LIMIT 1
)
FROM (SELECT) AS one LEFT JOIN queue q ON q.queue_id = %(queue_id)s
"""


async def describe_queue(conn: Connection, queue_id: int) -> str:
    """Return a queue's name for people."""
    row = await (await conn.execute(_DESCRIBE, {"queue_id": queue_id})).fetchone()
    assert row is not None, "it is one row"
    topic_id, generation, ordinal, topic = row
    if topic_id is None:
        return f"queue {queue_id} of {topic or 'a topic that is gone'}"
    return f"queue {queue_id} ({topic or f'topic {topic_id}'}, generation {generation}, queue {ordinal})"


async def find_append_holder(conn: Connection, queue_id: int) -> str:
    """Return for people who holds a queue's append lock."""
    key = queue_lock_key(queue_id) & _OID_MASK
    row = await (await conn.execute(_FIND_APPEND_HOLDER, (key,))).fetchone()
    return _UNKNOWN if row is None else _in_words(*row)


async def wait_for_writers(conn: Connection, table: DayTable, day: date, *, wait_seconds: float) -> None:
    """Wait until the transactions that write *table* now have ended. Raises DayStillOpenError with one's name.

    On a connection in autocommit mode, or its own transaction would be one of those it does not see ending.
    """
    deadline = time.monotonic() + wait_seconds
    waited_for = writers = await _find_writers(conn, table)
    while still := waited_for.keys() & writers.keys():
        if time.monotonic() >= deadline:
            detail = f"it is being written by {writers[min(still)]}"
            raise DayStillOpenError(table.name, f"{day}", detail)
        await asyncio.sleep(_LOOK_SECONDS)
        writers = await _find_writers(conn, table)


async def _find_writers(conn: Connection, table: DayTable) -> dict[str, str]:
    statement = sql.SQL(_FIND_WRITERS).format(table=sql.Literal(table.name))
    rows = await (await conn.execute(statement)).fetchall()
    return {transaction: _in_words(*holder) for transaction, *holder in rows}


def _in_words(
    pid: int | None, application: str | None, address: str | None, since: str | None, wait_event: str | None
) -> str:
    if pid is None:
        return "a prepared transaction"
    who = f"{application or 'a session'} (process {pid}" + (f" from {address})" if address else ")")
    waiting = ", and waits for a standby" if wait_event == "SyncRep" else ""
    return f"{who} since {since or 'a while'} (UTC){waiting}"
