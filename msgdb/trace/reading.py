"""Reading what was traced of one message, at one of its places in the log. For people: bounded in rows and in time."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from msgdb import names
from msgdb.log.partitions import list_partitions
from msgdb.postgres.binary_rows import TO_1970, binary_cursor, datetime_of
from msgdb.postgres.connections import Connection
from msgdb.trace.records import RANGE_MAX, TraceEvent

ACKED_MAX: Final = 10_000

# By the index on topic and key of each live day. Redriven and replayed copies are left to the look by the id.
_OF_KEY: Final = """
SELECT m.message_id FROM message m
WHERE m.topic = %(topic)s AND m.key = %(key)s AND m.namespace = %(namespace)s AND m.target_group IS NULL
ORDER BY m.stored_at DESC LIMIT %(limit)s
"""

# By the index on queue_id and first_offset of each live day: an event is of few messages, so that those which reach up
# to this one begin not far before it. Nothing of a message happens before it is stored.
_EVENTS: Final = f"""
SELECT t.at + {TO_1970}, t.kind, t.broker, t.queue_id, t.first_offset, t.last_offset, t.group_id, t.instance, t.attempt,
       t.handed_at + {TO_1970}, t.detail, t.left_out
FROM trace_event t
WHERE t.queue_id = %(queue_id)s AND t.first_offset > %(queue_offset)s - {RANGE_MAX}
  AND t.first_offset <= %(queue_offset)s AND t.last_offset >= %(queue_offset)s AND t.at >= %(stored_at)s
ORDER BY t.at, t.kind LIMIT %(limit)s
"""

# As above. Of each group the last one: what came before a reset counts no more.
_ACKED: Final = f"""
SELECT DISTINCT ON (t.group_id) t.group_id, t.at + {TO_1970}, t.instance, t.attempt
FROM trace_event t
WHERE t.queue_id = %(queue_id)s AND t.first_offset > %(queue_offset)s - {RANGE_MAX}
  AND t.first_offset <= %(queue_offset)s AND t.last_offset >= %(queue_offset)s AND t.at >= %(stored_at)s
  AND t.kind = 'ACKED' AND t.group_id IS NOT NULL
ORDER BY t.group_id, t.at DESC LIMIT {ACKED_MAX}
"""

# By the partial index, which has nothing else: a few rows, unless much was left out.
_LEFT_OUT: Final = f"""
SELECT t.broker, sum(t.left_out)::bigint, min(t.handed_at) + {TO_1970}, max(t.at) + {TO_1970}
FROM trace_event t
WHERE t.kind = 'LEFT_OUT' AND t.at >= %(first)s AND t.handed_at <= %(last)s
GROUP BY t.broker ORDER BY t.broker
"""


class Acked(NamedTuple):
    """That an instance of a group acknowledged a message."""

    group_id: int
    at_us: int
    instance: str | None
    attempt: int | None


class LeftOut(NamedTuple):
    """What a broker left out of the trace, in some time."""

    broker: str
    events: int
    """So many at most."""
    first_us: int
    last_us: int


async def list_ids_of_key(conn: Connection, namespace: str, topic: str, key: str, limit: int) -> list[UUID]:
    """Return the newest messages of a key, the newest first."""
    rows = await _rows(conn, _OF_KEY, {"namespace": namespace, "topic": topic, "key": key, "limit": limit})
    return [UUID(bytes=row[0]) for row in rows]


async def list_events(
    conn: Connection, queue_id: int, queue_offset: int, stored_at_us: int, limit: int
) -> list[TraceEvent]:
    """Return what was traced of a message at its place in the log, in order, the first *limit* of it."""
    parameters = {
        "queue_id": queue_id,
        "queue_offset": queue_offset,
        "stored_at": datetime_of(stored_at_us),
        "limit": limit,
    }
    return [TraceEvent._make(row) for row in await _rows(conn, _EVENTS, parameters)]


async def list_acked(conn: Connection, queue_id: int, queue_offset: int, stored_at_us: int) -> dict[int, Acked]:
    """Return, by group, that a message was acknowledged, as far as that was traced."""
    place = {"queue_id": queue_id, "queue_offset": queue_offset, "stored_at": datetime_of(stored_at_us)}
    return {row[0]: Acked._make(row) for row in await _rows(conn, _ACKED, place)}


async def list_left_out(conn: Connection, first: datetime, last: datetime) -> list[LeftOut]:
    """Return what brokers left out of the trace between two times."""
    return [LeftOut._make(row) for row in await _rows(conn, _LEFT_OUT, {"first": first, "last": last})]


async def first_traced_day(conn: Connection) -> date | None:
    """Return the first day of which events are kept; None where nothing is traced yet."""
    days = [partition.day for partition in await list_partitions(conn, names.TRACE_EVENT) if partition.is_attached]
    return min(days, default=None)


async def _rows(conn: Connection, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    cursor = binary_cursor(conn)
    # Never prepared, as all that joins days: a plan made while a day was empty would read it from end to end.
    await cursor.execute(statement, parameters, prepare=False)
    return await cursor.fetchall()
