"""Where a message lies: under one id there are several rows where it was redriven or replayed. Without the bodies."""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from uuid import UUID

from msgdb.log.found import COLUMNS, FoundMessage
from msgdb.postgres.binary_rows import binary_cursor
from msgdb.postgres.connections import Connection

COPIES_MAX: Final = 100
"""So many of the rows of one id are told: each redrive and each replay is one more."""


class Copies(NamedTuple):
    """A message, as often as it is stored."""

    found: list[FoundMessage]
    """What its publisher stored first, then what was stored once more for a single group; each in the order of time."""
    is_cut: bool
    """Whether there are more: of what was stored once more, the oldest are left out."""


# By the index on message_id, one probe for each live day: an id says when it was minted, and not when it was redriven.
# What does not count is left out before so many are taken: what is meant is never behind what is not.
_FIND: Final = f"""
SELECT {COLUMNS} FROM message m
WHERE m.message_id = %(message_id)s AND m.namespace = %(namespace)s
    AND (%(group_id)s::bigint IS NULL OR m.target_group IS NULL OR m.target_group = %(group_id)s)
ORDER BY m.target_group IS NOT NULL, m.stored_at DESC, m.queue_id DESC, m.queue_offset DESC LIMIT %(limit)s
"""

# One probe of the primary key of each live day.
_FIND_AT: Final = f"""
SELECT {COLUMNS} FROM message m WHERE m.queue_id = %(queue_id)s AND m.queue_offset = %(queue_offset)s LIMIT 1
"""


async def find_copies(
    conn: Connection, message_id: UUID, namespace: str, *, group_id: int | None = None, limit: int = COPIES_MAX
) -> Copies:
    """Return a message of a namespace as often as it is stored, in whatever day; with *group_id*, for that group."""
    parameters = {"message_id": message_id, "namespace": namespace, "group_id": group_id, "limit": limit + 1}
    rows = await _find(conn, _FIND, parameters)
    found = sorted(rows[:limit], key=lambda each: (each.target_group is not None, each.position))
    return Copies(found, is_cut=len(rows) > limit)


async def find_copy_at(conn: Connection, queue_id: int, queue_offset: int) -> FoundMessage | None:
    """Return what lies at that place of a queue."""
    found = await _find(conn, _FIND_AT, {"queue_id": queue_id, "queue_offset": queue_offset})
    return found[0] if found else None


async def _find(conn: Connection, statement: str, parameters: dict[str, Any]) -> list[FoundMessage]:
    cursor = binary_cursor(conn)
    # Never prepared: a plan made while a day was empty would read it from end to end when it is full.
    await cursor.execute(statement, parameters, prepare=False)
    return [FoundMessage._make(row) for row in await cursor.fetchall()]
