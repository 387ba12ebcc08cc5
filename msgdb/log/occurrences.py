"""Where a message lies in the log: once, and once more for each time that it was redriven or replayed."""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from msgdb.postgres.binary_rows import TO_1970, binary_cursor
from msgdb.postgres.connections import Connection

OCCURRENCES_MAX: Final = 100


class Occurrence(NamedTuple):
    """A place of the log where a message lies, and what of it decides who gets it."""

    queue_id: int
    queue_offset: int
    stored_at_us: int
    message_id: UUID
    namespace: str
    topic: str
    event_code: str
    key: str | None
    headers: dict[str, str] | None
    stress: bool
    target_group: int | None
    redrives: int
    topic_id: int
    """Of its queue: a topic that was deleted and made again is another one."""
    start_offset: int
    """Where its queue begins by now."""


_COLUMNS: Final = f"""
m.queue_id, m.queue_offset, m.stored_at + {TO_1970}, m.message_id, m.namespace, m.topic, m.event_code, m.key, m.headers,
m.stress, m.target_group, m.redrives, q.topic_id, q.start_offset
"""

# By the index on message_id of each live day: what was stored once more may lie in any of them. Never prepared: a plan
# made while a day was empty would read it from end to end when it is full.
_OF_MESSAGE: Final = f"""
SELECT {_COLUMNS} FROM message m JOIN queue q ON q.queue_id = m.queue_id
WHERE m.message_id = %(message_id)s ORDER BY m.stored_at, m.queue_id, m.queue_offset LIMIT %(limit)s
"""
# By the primary key of each live day.
_AT: Final = f"""
SELECT {_COLUMNS} FROM message m JOIN queue q ON q.queue_id = m.queue_id
WHERE m.queue_id = %(queue_id)s AND m.queue_offset = %(queue_offset)s
"""


async def find_occurrences(conn: Connection, message_id: UUID) -> list[Occurrence]:
    """Return where the message with that id lies, the oldest place first; nothing where no live day has it.

    One more than OCCURRENCES_MAX: there are more.
    """
    cursor = binary_cursor(conn)
    await cursor.execute(_OF_MESSAGE, {"message_id": message_id, "limit": OCCURRENCES_MAX + 1}, prepare=False)
    return [_occurrence(row) for row in await cursor.fetchall()]


async def find_occurrence_at(conn: Connection, queue_id: int, queue_offset: int) -> Occurrence | None:
    """Return what lies at that place of the log."""
    cursor = binary_cursor(conn)
    await cursor.execute(_AT, {"queue_id": queue_id, "queue_offset": queue_offset}, prepare=False)
    row = await cursor.fetchone()
    return None if row is None else _occurrence(row)


def _occurrence(row: tuple[object, ...]) -> Occurrence:
    found = Occurrence._make(row)
    return found._replace(message_id=UUID(bytes=row[3]))  # type: ignore[arg-type]
