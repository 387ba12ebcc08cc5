"""Dead letters: listed, shown, counted, purged. `msgdb.lanes.checkpoints` and `msgdb.days.expiry` make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgbroker.contract.errors import ThingNotFoundError
from msgdb.postgres.binary_rows import TO_1970, binary_cursor
from msgdb.postgres.connections import Connection

PAGE_MAX: Final = 1_000


_COPIED: Final = (
    *("queue_id", "queue_offset", "stored_at", "message_id", "namespace", "topic", "event_code"),
    *("key", "ordering_key", "headers", "body", "born_at", "born_host", "publisher_group", "stress", "redrives"),
)
COPIED_COLUMNS: Final = ", ".join(_COPIED)
"""What a dead letter has of its message: it is copied inside the database, from `message m`."""
COPIED_FROM_MESSAGE: Final = ", ".join(f"m.{column}" for column in _COPIED)


class DeadLetterSummary(NamedTuple):
    """A dead letter without its body."""

    dead_letter_id: int
    group_id: int
    group_name: str
    died_at_us: int
    attempts: int
    reason: str
    last_error: str | None
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
    body_bytes: int
    born_at_us: int
    born_host: str | None
    publisher_group: str | None
    stress: bool
    redrives: int


class DeadLetter(NamedTuple):
    """A dead letter with all of its message."""

    summary: DeadLetterSummary
    body: bytes


_COLUMNS: Final = f"""
id, group_id, group_name, died_at + {TO_1970}, attempts, reason, last_error,
queue_id, queue_offset, stored_at + {TO_1970}, message_id, namespace, topic, event_code, key, ordering_key, headers,
octet_length(body), born_at + {TO_1970}, born_host, publisher_group, stress, redrives
"""

# By the index on (group_id, id), backwards.
_LIST_OF_GROUP: Final = f"""
SELECT {_COLUMNS} FROM dead_letter
WHERE group_id = %(group_id)s AND id < %(before_id)s ORDER BY group_id DESC, id DESC LIMIT %(limit)s
"""
# By the primary key, backwards.
_LIST: Final = f"SELECT {_COLUMNS} FROM dead_letter WHERE id < %(before_id)s ORDER BY id DESC LIMIT %(limit)s"
_GET: Final = f"SELECT {_COLUMNS}, body FROM dead_letter WHERE id = %s"
# From the index on (group_id, id) alone.
_COUNT: Final = "SELECT group_id, count(*) FROM dead_letter GROUP BY group_id"
_PURGE: Final = "DELETE FROM dead_letter WHERE id = ANY(%s)"

_NEWEST: Final = 2**63 - 1


async def list_dead_letters(
    conn: Connection, group_id: int | None = None, *, before_id: int | None = None, limit: int = 100
) -> list[DeadLetterSummary]:
    """Return a page of a group's dead letters (or of all), the newest first; the last one's id begins the next page."""
    cursor = binary_cursor(conn)
    await cursor.execute(
        _LIST if group_id is None else _LIST_OF_GROUP,
        {
            "group_id": group_id,
            "before_id": _NEWEST if before_id is None else before_id,
            "limit": min(limit, PAGE_MAX),
        },
    )
    return [DeadLetterSummary._make(row) for row in await cursor.fetchall()]


async def get_dead_letter(conn: Connection, dead_letter_id: int) -> DeadLetter:
    """Return one with its body. Raises ThingNotFoundError."""
    cursor = binary_cursor(conn)
    await cursor.execute(_GET, (dead_letter_id,))
    row = await cursor.fetchone()
    if row is None:
        raise ThingNotFoundError("dead letter", str(dead_letter_id))
    return DeadLetter(DeadLetterSummary._make(row[:-1]), row[-1])


async def count_dead_letters(conn: Connection) -> dict[int, int]:
    """Return how many dead letters each group has; groups without any are left out."""
    cursor = await conn.execute(_COUNT)
    return dict(await cursor.fetchall())


async def purge_dead_letters(conn: Connection, dead_letter_ids: Sequence[int]) -> int:
    """Delete these for good and return how many there were."""
    cursor = await conn.execute(_PURGE, (list(dead_letter_ids),))
    return cursor.rowcount
