"""Where one message stands with each of many groups: all that the rows of their lanes say of it, at one moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from msgdb.log.beginnings import FIRST_KEEPER
from msgdb.log.ends import last_message, next_offset
from msgdb.postgres.array_rows import array_rows
from msgdb.postgres.binary_rows import TO_1970, binary_cursor, datetime_of
from msgdb.postgres.connections import Connection


class WaitingRow(NamedTuple):
    """A redelivery of the message."""

    attempt: int
    """The attempt that comes next."""
    due_at_us: int
    last_error: str | None
    shelved_by: str | None


class Redriven(NamedTuple):
    """That the dead letter was delivered again."""

    job_id: int
    redriven_at_us: int
    queue_id: int | None
    queue_offset: int | None


class Buried(NamedTuple):
    """The dead letter of the message."""

    dead_letter_id: int
    died_at_us: int
    attempts: int
    reason: str
    last_error: str | None
    redriven: tuple[Redriven, ...]


class BuriedCopy(NamedTuple):
    """A dead letter, with what it has kept of a message that is gone with its day."""

    group_id: int
    group: str
    topic: str
    message_id: UUID
    event_code: str
    key: str | None
    stored_at_us: int
    stress: bool
    redrives: int
    dead_letter: Buried


class LaneRows(NamedTuple):
    """What a lane's rows say of a message."""

    group_id: int
    has_cursor: bool
    epoch: int
    """Of the lane; 0: it has no cursor. What an owner of an earlier one says holds no more."""
    is_settled: bool
    """Whether the cursor has passed it, or holds it as settled."""
    owner: UUID | None
    """The broker that serves the lane; None: nobody does."""
    waiting: WaitingRow | None
    dead_letter: Buried | None
    is_beyond: bool = False
    """Whether it is beyond the end of its queue: the log has lost its end, and nobody has put the lane back yet."""
    has_foreign_row: bool = False
    """Whether what waits at the message's offset is another message, that the log has lost."""
    lost_died_at_us: int | None = None
    """When a message died that the log has lost, and for which this one, or one before it, was stored."""
    is_abandoned: bool = False
    """Whether the broker that served the lane last has not given it up: what it had not written yet nobody knows."""


_LETTER: Final = f"""
d.id, d.died_at + {TO_1970}, d.attempts, d.reason, d.last_error, (
    SELECT jsonb_agg(jsonb_build_array(
        done.job_id, (extract(epoch FROM done.redriven_at) * 1000000)::bigint, done.queue_id, done.queue_offset
    ) ORDER BY done.job_id)
    FROM redrive done WHERE done.dead_letter_id = d.id
)
"""

_LETTER_BEHIND: Final = """
SELECT b.died_at, b.stored_at FROM dead_letter b
WHERE b.group_id = w.group_id AND b.queue_id = %(queue_id)s AND b.queue_offset >= %(queue_offset)s
"""

# One statement, so that all is of one moment: a checkpoint moves cursor, redelivery and dead letter in one transaction.
# By the primary keys of cursor and redelivery, and the unique index of dead_letter; redrive has few rows for each.
# Never prepared: it joins by an array. Rows of another message, whose offset this was before the log lost its end, have
# another time. And in one log nothing behind a message was stored before it: a dead letter from there that was tells
# that its message is lost. Two are looked at for each group, the next one and the last.
_FIND: Final = f"""
WITH log_end AS MATERIALIZED (
    SELECT {next_offset("q", "last")} AS next_offset
    FROM queue q LEFT JOIN LATERAL {last_message("q.queue_id")} AS last ON true
    WHERE q.queue_id = %(queue_id)s
)
SELECT w.group_id, c.group_id IS NOT NULL, coalesce(c.epoch, 0),
       coalesce(%(queue_offset)s < c.acked_offset OR c.acked_ranges @> %(queue_offset)s::bigint, false),
       CASE WHEN c.owner < %(first_keeper)s AND c.lease_until > clock_timestamp() THEN c.owner END,
       coalesce(greatest(c.acked_offset, upper(c.acked_ranges)) > (SELECT next_offset FROM log_end), false),
       EXISTS (
           SELECT FROM redelivery f WHERE f.group_id = w.group_id AND f.member = '' AND f.queue_id = %(queue_id)s
           AND f.queue_offset = %(queue_offset)s AND f.stored_at <> %(stored_at)s
       ),
       (
           SELECT max(f.died_at) FROM (
               ({_LETTER_BEHIND} ORDER BY b.queue_offset, b.stored_at LIMIT 1)
               UNION ALL
               ({_LETTER_BEHIND} ORDER BY b.queue_offset DESC, b.stored_at DESC LIMIT 1)
           ) f WHERE f.stored_at < %(stored_at)s
       ) + {TO_1970},
       coalesce(c.owner < %(first_keeper)s AND c.lease_until <= clock_timestamp(), false),
       r.attempt, r.due_at + {TO_1970}, r.last_error, r.shelved_by,
       {_LETTER}
FROM {array_rows("w", group_id="bigint")}
LEFT JOIN cursor c ON c.group_id = w.group_id AND c.member = '' AND c.queue_id = %(queue_id)s
LEFT JOIN redelivery r ON r.group_id = w.group_id AND r.member = '' AND r.queue_id = %(queue_id)s
    AND r.queue_offset = %(queue_offset)s AND r.stored_at = %(stored_at)s
LEFT JOIN dead_letter d ON d.group_id = w.group_id AND d.queue_id = %(queue_id)s
    AND d.queue_offset = %(queue_offset)s AND d.stored_at = %(stored_at)s
ORDER BY w.group_id
"""

# By the beginning of dead_letter's unique index: when a message was stored that is gone with its day nobody knows. Of
# all groups that have dead letters, also of those that are no more: one probe of the index on (group_id, id) for each.
_BURIED_AT: Final = f"""
WITH RECURSIVE w (group_id) AS (
    SELECT min(group_id) FROM dead_letter
    UNION ALL
    SELECT (SELECT min(o.group_id) FROM dead_letter o WHERE o.group_id > w.group_id) FROM w WHERE w.group_id IS NOT NULL
)
SELECT d.group_id, d.group_name, d.topic, d.message_id, d.event_code, d.key,
       d.stored_at + {TO_1970}, d.stress, d.redrives, {_LETTER}
FROM w
JOIN dead_letter d ON d.group_id = w.group_id AND d.queue_id = %(queue_id)s AND d.queue_offset = %(queue_offset)s
WHERE d.namespace = %(namespace)s
ORDER BY d.group_id, d.id DESC
"""


async def find_lane_rows(
    conn: Connection, group_ids: Sequence[int], queue_id: int, queue_offset: int, stored_at_us: int
) -> dict[int, LaneRows]:
    """Return where a message stands with each of these groups."""
    parameters = {
        "group_id": list(group_ids),
        "queue_id": queue_id,
        "queue_offset": queue_offset,
        "stored_at": datetime_of(stored_at_us),
        "first_keeper": FIRST_KEEPER,
    }
    cursor = binary_cursor(conn)
    await cursor.execute(_FIND, parameters, prepare=False)
    return {row[0]: _lane_rows(row) for row in await cursor.fetchall()}


async def find_buried_at(conn: Connection, namespace: str, queue_id: int, queue_offset: int) -> list[BuriedCopy]:
    """Return the dead letters of what lay at a place of the log, of all groups that are or were in a namespace."""
    parameters = {"namespace": namespace, "queue_id": queue_id, "queue_offset": queue_offset}
    cursor = binary_cursor(conn)
    await cursor.execute(_BURIED_AT, parameters, prepare=False)
    return [_copy(row) for row in await cursor.fetchall()]


def _copy(row: Sequence[Any]) -> BuriedCopy:
    group_id, group, topic, message_id, *rest = row
    event_code, key, stored_at_us, stress, redrives, *of_letter = rest
    named = (group_id, group, topic, UUID(bytes=message_id), event_code, key)
    return BuriedCopy(*named, stored_at_us, stress, redrives, _buried(of_letter))


def _lane_rows(row: Sequence[Any]) -> LaneRows:
    group_id, has_cursor, epoch, is_settled, owner, *of_lost = row[:8]
    is_beyond, has_foreign_row, lost_died_at_us = of_lost
    is_abandoned, waiting, of_letter = row[8], row[9:13], row[13:]
    return LaneRows(
        group_id=group_id,
        has_cursor=has_cursor,
        epoch=epoch,
        is_settled=is_settled,
        owner=None if owner is None else UUID(bytes=owner),
        waiting=None if waiting[0] is None else WaitingRow(*waiting),
        dead_letter=None if of_letter[0] is None else _buried(of_letter),
        is_beyond=is_beyond,
        has_foreign_row=has_foreign_row,
        lost_died_at_us=lost_died_at_us,
        is_abandoned=is_abandoned,
    )


def _buried(columns: Sequence[Any]) -> Buried:
    dead_letter_id, died_at_us, attempts, reason, last_error, redriven = columns
    jobs = tuple(Redriven(*each) for each in redriven or ())
    return Buried(dead_letter_id, died_at_us, attempts, reason, last_error, jobs)
