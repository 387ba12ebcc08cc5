"""Where a message lies: under one id there are several rows where it was redriven or replayed. Without the bodies."""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from uuid import UUID

from msgdb.postgres.binary_rows import TO_1970, binary_cursor
from msgdb.postgres.connections import Connection

COPIES_MAX: Final = 100
"""So many rows of one id are looked at, the newest first."""


class StoredCopy(NamedTuple):
    """A row of the log, with all that matching asks for."""

    queue_id: int
    queue_offset: int
    stored_at_us: int
    message_id: bytes
    namespace: str
    topic: str
    event_code: str
    headers: dict[str, str]
    ordering_key: str
    stress: bool
    target_group: int | None
    size_bytes: int
    """Of the body."""

    @property
    def held_bytes(self) -> int:
        """What the body takes."""
        return self.size_bytes

    @property
    def id(self) -> UUID:
        """The message's id, for people."""
        return UUID(bytes=self.message_id)


_COLUMNS: Final = f"""
m.queue_id, m.queue_offset, m.stored_at + {TO_1970}, m.message_id, m.namespace, m.topic, m.event_code,
coalesce(m.headers, '{{}}'), coalesce(m.ordering_key, ''), m.stress, m.target_group, octet_length(m.body)
"""

# By the index on message_id of each live day, of which there are a dozen at most.
_FIND: Final = f"""
SELECT {_COLUMNS} FROM message m WHERE m.message_id = %(message_id)s ORDER BY m.stored_at DESC LIMIT %(limit)s
"""

# One probe of the primary key of each live day.
_FIND_AT: Final = f"""
SELECT {_COLUMNS} FROM message m WHERE m.queue_id = %(queue_id)s AND m.queue_offset = %(queue_offset)s LIMIT 1
"""


async def find_copies(conn: Connection, message_id: UUID) -> list[StoredCopy]:
    """Return the rows with that id, the newest first."""
    return await _find(conn, _FIND, {"message_id": message_id, "limit": COPIES_MAX})


async def find_copy_at(conn: Connection, queue_id: int, queue_offset: int) -> StoredCopy | None:
    """Return what lies at that place of a queue."""
    found = await _find(conn, _FIND_AT, {"queue_id": queue_id, "queue_offset": queue_offset})
    return found[0] if found else None


async def _find(conn: Connection, statement: str, parameters: dict[str, Any]) -> list[StoredCopy]:
    cursor = binary_cursor(conn)
    # Never prepared: a plan made while a day was empty would read it from end to end when it is full.
    await cursor.execute(statement, parameters, prepare=False)
    return [StoredCopy._make(row) for row in await cursor.fetchall()]
