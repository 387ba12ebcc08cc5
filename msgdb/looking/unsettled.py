"""What a group has not settled, by what is stored: where lanes stand, what has a redelivery row, what comes next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from msgdb.log.beginnings import FIRST_KEEPER
from msgdb.log.found import COLUMNS, FoundMessage, Position
from msgdb.postgres.array_rows import array_rows
from msgdb.postgres.binary_rows import TO_1970, binary_cursor, datetime_of
from msgdb.postgres.connections import Connection


class LaneStanding(NamedTuple):
    """Where a lane stands, as of its last checkpoint."""

    queue_id: int
    epoch: int
    """0: it has no cursor. What an owner of an earlier epoch says holds no more."""
    owner: UUID | None
    """The broker that serves it; None: nobody does."""
    first_offset: int
    """The first that is neither settled nor has a redelivery row, if that is stored yet."""
    read_at_us: int
    """When that was so, by the clock of the store."""


class WaitingMessage(NamedTuple):
    """A message that has a redelivery row."""

    queue_id: int
    queue_offset: int
    stored_at_us: int
    attempt: int
    """The attempt that comes next."""
    due_at_us: int
    shelved_by: str | None
    """The paused subscriptions that it waits for; None: for its time."""

    @property
    def position(self) -> Position:
        """Return where it is, in the order of all queues."""
        return Position(self.stored_at_us, self.queue_id, self.queue_offset)


class Known(NamedTuple):
    """What is stored of a message."""

    message: FoundMessage | None
    """None: it is gone, with its day."""
    attempt: int | None
    """That comes next, by its redelivery row; None: it has none."""
    due_at_us: int | None
    last_error: str | None


# One row for each queue: its row and the cursor by their primary keys. Retention may have moved a cursor into its
# ranges, and a version of the configuration that keeps a beginning is no broker. Never prepared: it joins by an array.
_LANES: Final = f"""
SELECT w.queue_id, coalesce(c.epoch, 0),
       CASE WHEN c.owner < %(first_keeper)s AND c.lease_until > clock_timestamp() THEN c.owner END,
       coalesce(
           (SELECT upper(r) FROM unnest(c.acked_ranges) r WHERE r @> floor.queue_offset), floor.queue_offset
       ),
       clock_timestamp() + {TO_1970}
FROM {array_rows("w", queue_id="bigint", initial_offset="bigint")}
JOIN queue q ON q.queue_id = w.queue_id
LEFT JOIN cursor c ON c.group_id = %(group_id)s AND c.member = '' AND c.queue_id = w.queue_id
CROSS JOIN LATERAL (
    SELECT greatest(coalesce(c.acked_offset, w.initial_offset), q.start_offset) AS queue_offset
) floor
ORDER BY w.queue_id
"""

# Of each lane the first rows of its part of the primary key: within a queue that is the oldest first. What is not asked
# for is read past, of ten thousand that a lane may have. Never prepared: it joins by an array.
_WAITING: Final = f"""
SELECT r.queue_id, r.queue_offset, r.stored_at + {TO_1970}, r.attempt, r.due_at + {TO_1970}, r.shelved_by
FROM {array_rows("w", queue_id="bigint")}
CROSS JOIN LATERAL (
    SELECT o.* FROM redelivery o
    WHERE o.group_id = %(group_id)s AND o.member = '' AND o.queue_id = w.queue_id
      AND (%(is_shelved)s::boolean IS NULL OR (o.shelved_by IS NOT NULL) = %(is_shelved)s)
    ORDER BY o.queue_offset LIMIT %(limit)s
) r
ORDER BY r.stored_at, r.queue_id, r.queue_offset LIMIT %(limit)s
"""

# The whole primary keys are given: one probe of one partition, and one of redelivery, for each message. Never prepared:
# a plan made while a day was empty would read it from end to end when it is full.
_KNOWN: Final = f"""
SELECT w.queue_id, w.queue_offset, r.attempt, r.due_at + {TO_1970}, r.last_error, {COLUMNS}
FROM {array_rows("w", queue_id="bigint", queue_offset="bigint", stored_at="timestamptz")}
LEFT JOIN message m
    ON m.queue_id = w.queue_id AND m.queue_offset = w.queue_offset AND m.stored_at = w.stored_at
LEFT JOIN redelivery r
    ON r.group_id = %(group_id)s AND r.member = '' AND r.queue_id = w.queue_id AND r.queue_offset = w.queue_offset
    AND r.stored_at = w.stored_at
"""

# One probe of the primary key of each live day for each queue, merged. Never prepared: it joins by an array.
_NEXT: Final = f"""
SELECT {COLUMNS}
FROM {array_rows("w", queue_id="bigint", queue_offset="bigint")}
CROSS JOIN LATERAL (
    SELECT n.* FROM message n WHERE n.queue_id = w.queue_id AND n.queue_offset >= w.queue_offset
    ORDER BY n.queue_offset LIMIT 1
) m
ORDER BY m.stored_at, m.queue_id
"""


async def list_standings(
    conn: Connection, group_id: int, initial_offsets: Mapping[int, int]
) -> dict[int, LaneStanding]:
    """Return where the lanes of these queues stand; a lane that nobody ever served begins at its *initial_offsets*."""
    parameters = {
        "group_id": group_id,
        "queue_id": list(initial_offsets),
        "initial_offset": list(initial_offsets.values()),
        "first_keeper": FIRST_KEEPER,
    }
    cursor = binary_cursor(conn)
    await cursor.execute(_LANES, parameters, prepare=False)
    return {
        queue_id: LaneStanding(queue_id, epoch, None if owner is None else UUID(bytes=owner), *rest)
        for queue_id, epoch, owner, *rest in await cursor.fetchall()
    }


async def list_waiting(
    conn: Connection, group_id: int, queue_ids: Sequence[int], limit: int, *, is_shelved: bool | None = None
) -> list[WaitingMessage]:
    """Return the oldest of a group's messages of these queues that have a redelivery row.

    *is_shelved*: only those that wait for paused subscriptions, or only those that do not.
    """
    parameters = {"group_id": group_id, "queue_id": list(queue_ids), "limit": limit, "is_shelved": is_shelved}
    cursor = binary_cursor(conn)
    await cursor.execute(_WAITING, parameters, prepare=False)
    return [WaitingMessage._make(row) for row in await cursor.fetchall()]


async def find_known(conn: Connection, group_id: int, positions: Sequence[Position]) -> dict[tuple[int, int], Known]:
    """Return what is stored of the messages at these places, by queue and offset."""
    parameters = {
        "group_id": group_id,
        "queue_id": [each.queue_id for each in positions],
        "queue_offset": [each.queue_offset for each in positions],
        "stored_at": [datetime_of(each.stored_at_us) for each in positions],
    }
    cursor = binary_cursor(conn)
    await cursor.execute(_KNOWN, parameters, prepare=False)
    known: dict[tuple[int, int], Known] = {}
    for queue_id, queue_offset, attempt, due_at_us, last_error, *row in await cursor.fetchall():
        message = None if row[0] is None else FoundMessage._make(row)
        known[queue_id, queue_offset] = Known(message, attempt, due_at_us, last_error)
    return known


async def list_next(conn: Connection, first_offsets: Mapping[int, int]) -> list[FoundMessage]:
    """Return the first message of each queue from these offsets on, where there is one; the oldest first."""
    parameters = {"queue_id": list(first_offsets), "queue_offset": list(first_offsets.values())}
    cursor = binary_cursor(conn)
    await cursor.execute(_NEXT, parameters, prepare=False)
    return [FoundMessage._make(row) for row in await cursor.fetchall()]
