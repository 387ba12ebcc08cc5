"""Messages without their bodies: what it takes to choose among many of them."""

from __future__ import annotations

from typing import Final, NamedTuple

from msgdb.postgres.binary_rows import TO_1970, binary_cursor
from msgdb.postgres.connections import Connection


class MessageHead(NamedTuple):
    """A message as far as people choose by it."""

    queue_id: int
    queue_offset: int
    stored_at_us: int
    event_code: str
    key: str | None
    headers: dict[str, str] | None
    stress: bool
    target_group: int | None
    body_bytes: int


# By the primary key of each live day, merged. The size of a body is known without reading what lies outside of the row.
_READ: Final = f"""
SELECT queue_id, queue_offset, stored_at + {TO_1970}, event_code, key, headers, stress, target_group, octet_length(body)
FROM message
WHERE queue_id = %(queue_id)s AND queue_offset >= %(first)s AND queue_offset < %(end)s
ORDER BY queue_offset LIMIT %(limit)s
"""


async def read_heads(conn: Connection, queue_id: int, first: int, end: int, limit: int) -> list[MessageHead]:
    """Return messages from *first* to below *end*, in order, *limit* at most.

    The first may be later than asked for, if its days were dropped; from there on there are no gaps.
    """
    cursor = binary_cursor(conn)
    # Never prepared: a plan made while a day was empty would read it from end to end when it is full.
    parameters = {"queue_id": queue_id, "first": first, "end": end, "limit": limit}
    await cursor.execute(_READ, parameters, prepare=False)
    return [MessageHead._make(row) for row in await cursor.fetchall()]
