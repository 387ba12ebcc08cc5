"""What must happen before a day is dropped, so that nothing points into it any more.

Rows that a lane's owner holds at the moment are skipped, not waited for: waiting could deadlock with a checkpoint. They
are found again in the next round, and the day stays until there are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from psycopg import sql

from msgdb.connections import Connection
from msgdb.partitions import DayPartition, day_bounds

_BATCH: Final = 1_000

# One probe of the day's primary key for each queue. The partition is read by its own name: once its detach has begun,
# the parent does not show it any more.
_FIND_ENDS: Final = """
SELECT q.queue_id, last.queue_offset + 1
FROM queue q
CROSS JOIN LATERAL (
    SELECT m.queue_offset FROM {partition} m WHERE m.queue_id = q.queue_id ORDER BY m.queue_offset DESC LIMIT 1
) last
WHERE last.queue_offset >= q.start_offset
"""

# Before the drop, or a queue whose days are all gone would begin at 0 again.
_RAISE_STARTS: Final = """
UPDATE queue q SET start_offset = greatest(q.start_offset, w.end_offset)
FROM unnest(%(queue_ids)s::bigint[], %(end_offsets)s::bigint[]) AS w (queue_id, end_offset)
WHERE q.queue_id = w.queue_id
"""

# Deleted and copied in one statement. No epoch guards it: an owner that still has one of these in flight finds the
# message gone at its next attempt and settles it as expired.
_END_REDELIVERIES: Final = """
WITH ending AS (
    SELECT group_id, member, queue_id, queue_offset FROM redelivery WHERE stored_at < %(day_end)s
    ORDER BY group_id, member, queue_id, queue_offset LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), ended AS (
    DELETE FROM redelivery r USING ending e
    WHERE r.group_id = e.group_id AND r.member = e.member AND r.queue_id = e.queue_id
      AND r.queue_offset = e.queue_offset
    RETURNING r.*
), copied AS (
    INSERT INTO dead_letter
        (group_id, group_name, attempts, reason, last_error,
         queue_id, queue_offset, stored_at, message_id, namespace, topic, event_code, key, ordering_key, headers, body,
         born_at, born_host, publisher_group, stress, redrives)
    SELECT r.group_id, coalesce(g.name, ''), greatest(r.attempt - 1, 0), 'EXPIRED', r.last_error,
           m.queue_id, m.queue_offset, m.stored_at, m.message_id, m.namespace, m.topic, m.event_code, m.key,
           m.ordering_key, m.headers, m.body, m.born_at, m.born_host, m.publisher_group, m.stress, m.redrives
    FROM ended r
    JOIN message m ON m.queue_id = r.queue_id AND m.queue_offset = r.queue_offset AND m.stored_at = r.stored_at
    LEFT JOIN unnest(%(group_ids)s::bigint[], %(group_names)s::text[]) AS g (group_id, name)
           ON g.group_id = r.group_id
    ON CONFLICT (group_id, queue_id, queue_offset, stored_at) DO NOTHING
)
SELECT count(*) FROM ended
"""

# What is skipped is what was neither settled nor moved before: ranges below the new offset do not count.
_MOVE_CURSORS: Final = """
WITH behind AS (
    SELECT c.group_id, c.member, c.queue_id, c.acked_offset, c.acked_ranges, q.start_offset
    FROM cursor c JOIN queue q ON q.queue_id = c.queue_id
    WHERE c.acked_offset < q.start_offset
    ORDER BY c.group_id, c.member, c.queue_id LIMIT %(limit)s FOR UPDATE OF c SKIP LOCKED
)
UPDATE cursor c
SET acked_offset = b.start_offset, acked_ranges = b.acked_ranges * int8multirange(int8range(b.start_offset, NULL))
FROM behind b
WHERE c.group_id = b.group_id AND c.member = b.member AND c.queue_id = b.queue_id
RETURNING b.start_offset - b.acked_offset - (
    SELECT coalesce(sum(upper(r) - lower(r)), 0)::bigint
    FROM unnest(b.acked_ranges * int8multirange(int8range(b.acked_offset, b.start_offset))) r
)
"""

_LEFT_BEHIND: Final = """
SELECT EXISTS (SELECT 1 FROM redelivery WHERE stored_at < %(day_end)s)
    OR EXISTS (SELECT 1 FROM cursor c JOIN queue q ON q.queue_id = c.queue_id WHERE c.acked_offset < q.start_offset)
"""


@dataclass(frozen=True, slots=True)
class Expired:
    """What ended with a day."""

    redelivery_count: int
    """Redeliveries that became dead letters."""
    skipped_count: int
    """Messages that groups had not settled; a group counts for itself."""
    is_complete: bool
    """Nothing points into the day any more: it may be dropped."""


async def expire_day(conn: Connection, partition: DayPartition, group_names: Mapping[int, str]) -> Expired:
    """End what points into a day of `message` or an earlier one; repeat it until it is complete.

    In autocommit mode: each batch is a transaction.
    """
    _, day_end = day_bounds(partition.day)
    await _raise_starts(conn, partition)
    redelivery_count = skipped_count = 0
    parameters = {
        "day_end": day_end,
        "limit": _BATCH,
        "group_ids": list(group_names),
        "group_names": list(group_names.values()),
    }
    # Bounded by what is there: each batch takes rows away, and new ones for so old a day are a rare few.
    while (ended := await _count(conn, _END_REDELIVERIES, parameters)) > 0:
        redelivery_count += ended
    while skipped := await (await conn.execute(_MOVE_CURSORS, {"limit": _BATCH})).fetchall():
        skipped_count += sum(row[0] for row in skipped)
    left_behind = await (await conn.execute(_LEFT_BEHIND, {"day_end": day_end})).fetchone()
    return Expired(redelivery_count, skipped_count, is_complete=left_behind == (False,))


async def _raise_starts(conn: Connection, partition: DayPartition) -> None:
    find_ends = sql.SQL(_FIND_ENDS).format(partition=sql.Identifier(partition.name))
    ends = await (await conn.execute(find_ends)).fetchall()
    if ends:
        await conn.execute(
            _RAISE_STARTS, {"queue_ids": [row[0] for row in ends], "end_offsets": [row[1] for row in ends]}
        )


async def _count(conn: Connection, statement: str, parameters: Mapping[str, object]) -> int:
    row = await (await conn.execute(statement, parameters)).fetchone()
    return 0 if row is None else int(row[0])
