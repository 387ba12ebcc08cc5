"""Which headers the newest messages of a topic have: what can be filtered by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgdb.looking.spans import Span
from msgdb.postgres.array_rows import array_rows
from msgdb.postgres.binary_rows import TO_1970, binary_cursor
from msgdb.postgres.connections import Connection

NAMES_MAX: Final = 1_000
_EXAMPLE_CHARS: Final = 60

# By the primary key of each live day, so many offsets of each queue. Each message counts once: what was redriven or
# replayed lies there several times, under its id. The bound on names is for publishers that make names up: the rarest
# are left out.
_LIST: Final = f"""
WITH newest AS MATERIALIZED (
    SELECT DISTINCT ON (m.message_id) m.event_code, m.headers, m.stored_at
    FROM {array_rows("w", queue_id="bigint", first="bigint", behind="bigint")}
    CROSS JOIN LATERAL (
        SELECT one.message_id, one.event_code, one.headers, one.stored_at, one.target_group FROM message one
        WHERE one.queue_id = w.queue_id AND one.queue_offset >= w.first AND one.queue_offset < w.behind OFFSET 0
    ) m
    ORDER BY m.message_id, m.target_group IS NOT NULL, m.stored_at DESC
), header AS (
    SELECT n.event_code, h.name, count(*) AS messages,
           (SELECT count(*) FROM newest whole WHERE whole.event_code = n.event_code) AS of_messages,
           (array_agg(left(h.value, {_EXAMPLE_CHARS}) ORDER BY n.stored_at DESC))[1] AS example,
           max(n.stored_at) + {TO_1970} AS last_seen_at_us
    FROM newest n CROSS JOIN LATERAL jsonb_each_text(n.headers) AS h (name, value)
    GROUP BY n.event_code, h.name
)
SELECT (SELECT count(*) FROM newest), found.* FROM (VALUES (1)) AS once
LEFT JOIN (
    SELECT * FROM header ORDER BY messages DESC, event_code, name LIMIT {NAMES_MAX + 1}
) found ON true
ORDER BY found.messages DESC, found.event_code, found.name
"""


class HeaderSeen(NamedTuple):
    """A header that messages of a type had."""

    event_code: str
    name: str
    messages: int
    """How many had it."""
    of_messages: int
    """How many messages of the event code were looked at."""
    example: str
    """The newest value, or its beginning."""
    last_seen_at_us: int


async def list_headers_seen(conn: Connection, spans: Sequence[Span]) -> tuple[list[HeaderSeen], int]:
    """Return the headers of what lies there, and how many messages that is.

    The most frequent come first: NAMES_MAX, and one more where there are more.
    """
    parameters = {
        "queue_id": [span.queue_id for span in spans],
        "first": [span.first for span in spans],
        "behind": [span.end for span in spans],
    }
    cursor = binary_cursor(conn)
    await cursor.execute(_LIST, parameters, prepare=False)
    rows = await cursor.fetchall()
    return [HeaderSeen._make(row[1:]) for row in rows if row[1] is not None], rows[0][0]
