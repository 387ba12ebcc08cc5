"""Reads of the log: ranges, messages by their offsets, where queues begin and end. Times: microseconds since 1970."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgdb.log.ends import last_message, next_offset
from msgdb.postgres.array_rows import array_rows
from msgdb.postgres.binary_rows import TO_1970, binary_cursor, datetime_of
from msgdb.postgres.connections import Connection


class MessageRow(NamedTuple):
    """A message, as a row of the table `message`."""

    queue_id: int
    queue_offset: int
    stored_at_us: int
    message_id: bytes
    namespace: str
    topic: str
    event_code: str
    key: str | None
    ordering_key: str | None
    headers: dict[str, str] | None
    body: bytes
    born_at_us: int
    born_host: str | None
    publisher_group: str | None
    stress: bool
    target_group: int | None
    redrives: int


_OFFSET_PLACE: Final = MessageRow._fields.index("queue_offset")
_BODY_PLACE: Final = MessageRow._fields.index("body")


class OffsetsRead(NamedTuple):
    """The messages that were asked for one by one, as far as they could be read."""

    rows: list[MessageRow]
    over_bytes: list[int]
    """Offsets of those that are there and were left out: the bodies before them were too many bytes."""


def _columns(body: str) -> str:
    return f"""
m.queue_id, m.queue_offset, m.stored_at + {TO_1970}, m.message_id, m.namespace, m.topic, m.event_code,
m.key, m.ordering_key, m.headers, {body}, m.born_at + {TO_1970}, m.born_host, m.publisher_group, m.stress,
m.target_group, m.redrives
"""


_COLUMNS: Final = _columns("m.body")
_WITHIN_BYTES: Final = "(m.bytes_up_to_here <= %(bytes_max)s OR m.bytes_up_to_here = octet_length(m.body))"

# By the primary key of each live day, merged. The running sum needs only the sizes, so a body that is over the budget
# is never fetched from its TOAST table; the first row passes whatever its size, or a large one would block its queue.
_READ_RANGE: Final = f"""
SELECT {_COLUMNS} FROM (
    SELECT w.*, sum(octet_length(w.body)) OVER (ORDER BY w.queue_offset ROWS UNBOUNDED PRECEDING) AS bytes_up_to_here
    FROM (
        SELECT * FROM message WHERE queue_id = %(queue_id)s AND queue_offset >= %(first_offset)s
        ORDER BY queue_offset LIMIT %(limit)s
    ) w
) m
WHERE {_WITHIN_BYTES}
ORDER BY m.queue_offset
"""

# The whole primary key is given: one probe of one partition for each message. Never prepared, like all that joins or
# filters without an order: a plan made while a day was empty would read it from end to end when it is full.
# What is over the budget is told apart from what is gone, by coming without its body.
_READ_OFFSETS: Final = f"""
SELECT {_columns(f"CASE WHEN {_WITHIN_BYTES} THEN m.body END")} FROM (
    SELECT w.*, sum(octet_length(w.body)) OVER (ORDER BY w.queue_offset ROWS UNBOUNDED PRECEDING) AS bytes_up_to_here
    FROM {array_rows("wanted", queue_offset="bigint", stored_at="timestamptz")}
    JOIN message w
        ON w.queue_id = %(queue_id)s AND w.queue_offset = wanted.queue_offset AND w.stored_at = wanted.stored_at
) m
ORDER BY m.queue_offset
"""

# One probe of the primary key's end per queue and day.
_NEXT_OFFSETS: Final = f"""
SELECT q.queue_id, {next_offset("q", "tail")}
FROM queue q
LEFT JOIN LATERAL {last_message("q.queue_id")} AS tail ON true
WHERE q.queue_id = ANY(%s)
"""

_FIRST_OFFSETS: Final = "SELECT queue_id, start_offset FROM queue WHERE queue_id = ANY(%s)"

_STORED_AT: Final = f"""
SELECT m.stored_at + {TO_1970} FROM message m WHERE m.queue_id = %s AND m.queue_offset = %s
"""


async def read_range(
    conn: Connection, queue_id: int, first_offset: int, limit: int, bytes_max: int
) -> list[MessageRow]:
    """Return messages from *first_offset* on, in order: *limit* at most, and bodies of *bytes_max* in all, or one.

    The first may be later than asked for, if its days were dropped; from there on there are no gaps.
    """
    cursor = binary_cursor(conn)
    await cursor.execute(
        _READ_RANGE,
        {"queue_id": queue_id, "first_offset": first_offset, "limit": limit, "bytes_max": bytes_max},
    )
    return list(map(MessageRow._make, await cursor.fetchall()))


async def read_offsets(
    conn: Connection, queue_id: int, wanted: Sequence[tuple[int, int]], bytes_max: int
) -> OffsetsRead:
    """Return the messages at these (queue_offset, stored_at_us), in order: bodies of *bytes_max* in all, or one.

    Those whose day was dropped are neither returned nor named.
    """
    cursor = binary_cursor(conn)
    await cursor.execute(
        _READ_OFFSETS,
        {
            "queue_id": queue_id,
            "queue_offset": [queue_offset for queue_offset, _ in wanted],
            "stored_at": [datetime_of(stored_at_us) for _, stored_at_us in wanted],
            "bytes_max": bytes_max,
        },
        prepare=False,
    )
    found = await cursor.fetchall()
    rows = [MessageRow._make(row) for row in found if row[_BODY_PLACE] is not None]
    return OffsetsRead(rows, [row[_OFFSET_PLACE] for row in found[len(rows) :]])


async def next_offsets(conn: Connection, queue_ids: Sequence[int]) -> dict[int, int]:
    """Return, for each of these queues, the offset that the next message will get."""
    cursor = await conn.execute(_NEXT_OFFSETS, (list(queue_ids),), binary=True)
    return dict(await cursor.fetchall())


async def first_offsets(conn: Connection, queue_ids: Sequence[int]) -> dict[int, int]:
    """Return, for each of these queues, the offset below which nothing exists any more."""
    cursor = await conn.execute(_FIRST_OFFSETS, (list(queue_ids),), binary=True)
    return dict(await cursor.fetchall())


async def offset_at_time(conn: Connection, queue_id: int, time_us: int) -> int:
    """Return the offset of the first message stored at that time or later; the next offset if there is none.

    A binary search: within a queue `stored_at` never goes back.
    """
    low = (await first_offsets(conn, [queue_id])).get(queue_id, 0)
    high = (await next_offsets(conn, [queue_id])).get(queue_id, 0)
    while low < high:
        middle = (low + high) // 2
        stored_at_us = await _stored_at_us(conn, queue_id, middle)
        # A message that is gone was dropped with its day after `low` was read: what is sought comes later.
        if stored_at_us is None or stored_at_us < time_us:
            low = middle + 1
        else:
            high = middle
    return low


async def _stored_at_us(conn: Connection, queue_id: int, queue_offset: int) -> int | None:
    cursor = binary_cursor(conn)
    await cursor.execute(_STORED_AT, (queue_id, queue_offset))
    row = await cursor.fetchone()
    return None if row is None else int(row[0])
