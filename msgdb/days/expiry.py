"""What must happen before a day is dropped, so that nothing points into it any more.

Rows that a lane's owner holds at the moment are skipped, not waited for: waiting could deadlock with a checkpoint. They
are found again in the next round, and the day stays until there are none. So it is with a queue that somebody appends
to: the start of one that ends in this day is raised under its append lock only. An append may have its snapshot, from
before the start was raised, and not have locked the log yet, which alone makes the detach wait for it: it would find no
row any more and the old start, and give the day's offsets out again. Under the lock, whoever had it before has
committed, and whoever takes it next sees the raised start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from psycopg import sql

from msgdb.archive.permits import say_dropping
from msgdb.dead_letters.copies import COPIED_COLUMNS, COPIED_FROM_MESSAGE
from msgdb.dead_letters.usage import counted_from
from msgdb.lanes.keys import same_lane
from msgdb.locks import QUEUE_LOCK_CLASS, queue_lock_key
from msgdb.log.ends import last_message
from msgdb.log.partitions import DayPartition, day_bounds
from msgdb.postgres.connections import Connection

_BATCH: Final = 1_000
_QUEUES_AT_ONCE: Final = 300
"""How many queues' append locks are held at once: they are in memory that all sessions of the server share."""
_HELD_SECONDS_MAX: Final = 2.0
"""How long append locks are held, at most: a broker that freezes with them loses them after it."""

# For each queue one probe of the day's primary key, and of each later day's. The partition is read by its own name:
# once its detach has begun, the parent does not show it any more.
_FIND_REACHING: Final = f"""
SELECT q.queue_id, newer.queue_offset IS NOT NULL
FROM queue q
CROSS JOIN LATERAL {last_message("q.queue_id", table="{partition}")} AS last
LEFT JOIN LATERAL {last_message("q.queue_id", since="%(day_end)s")} AS newer ON true
WHERE last.queue_offset >= q.start_offset
"""

# None is waited for, so neither is anybody who waits for these.
_TRY_LOCKS: Final = f"""
SELECT w.queue_id FROM unnest(%(queue_ids)s::bigint[], %(keys)s::integer[]) AS w (queue_id, key)
WHERE pg_try_advisory_xact_lock({QUEUE_LOCK_CLASS}, w.key)
"""
_LIMIT: Final = "SELECT set_config('idle_in_transaction_session_timeout', %s, true)"

# Before the drop, or a queue whose days are all gone would begin at 0 again. The ends are read here, after the locks.
_RAISE_STARTS: Final = f"""
UPDATE queue q SET start_offset = last.queue_offset + 1
FROM unnest(%(queue_ids)s::bigint[]) AS w (queue_id)
CROSS JOIN LATERAL {last_message("w.queue_id", table="{partition}")} AS last
WHERE q.queue_id = w.queue_id AND q.start_offset <= last.queue_offset
"""

# Deleted, copied and counted in one statement. No epoch guards it: an owner that still has one of these in flight finds
# the message gone at its next attempt and settles it as expired.
_END_REDELIVERIES: Final = f"""
WITH ending AS (
    SELECT group_id, member, queue_id, queue_offset FROM redelivery WHERE stored_at < %(day_end)s
    ORDER BY group_id, member, queue_id, queue_offset LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), ended AS (
    DELETE FROM redelivery r USING ending e
    WHERE {same_lane("r", "e")} AND r.queue_offset = e.queue_offset
    RETURNING r.*
), copied AS (
    INSERT INTO dead_letter (group_id, group_name, attempts, reason, last_error, {COPIED_COLUMNS})
    SELECT r.group_id, coalesce(g.name, ''), greatest(r.attempt - 1, 0), 'EXPIRED', r.last_error, {COPIED_FROM_MESSAGE}
    FROM ended r
    JOIN message m ON m.queue_id = r.queue_id AND m.queue_offset = r.queue_offset AND m.stored_at = r.stored_at
    LEFT JOIN unnest(%(group_ids)s::bigint[], %(group_names)s::text[]) AS g (group_id, name)
           ON g.group_id = r.group_id
    ON CONFLICT (group_id, queue_id, queue_offset, stored_at) DO NOTHING
    RETURNING group_id, queue_id, event_code, stress
), counted AS ({counted_from("copied")})
SELECT count(*) FROM ended
"""

# What is skipped is what was neither settled nor moved before: ranges below the new offset do not count.
_MOVE_CURSORS: Final = f"""
WITH behind AS (
    SELECT c.group_id, c.member, c.queue_id, c.acked_offset, c.acked_ranges, q.start_offset
    FROM cursor c JOIN queue q ON q.queue_id = c.queue_id
    WHERE c.acked_offset < q.start_offset
    ORDER BY c.group_id, c.member, c.queue_id LIMIT %(limit)s FOR UPDATE OF c SKIP LOCKED
)
UPDATE cursor c
SET acked_offset = b.start_offset, acked_ranges = b.acked_ranges * int8multirange(int8range(b.start_offset, NULL))
FROM behind b
WHERE {same_lane("c", "b")}
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
    """What expired as a day was emptied, before it is dropped."""

    redelivery_count: int
    """How many redeliveries became dead letters."""
    skipped_count: int
    """How many messages groups had not settled; each group counts for itself."""
    is_complete: bool
    """Whether nothing points into the day any more: it may be dropped."""


async def expire_day(conn: Connection, partition: DayPartition, group_names: Mapping[int, str]) -> Expired:
    """End what points into a day of `message` or an earlier one; repeat it until it is complete.

    In autocommit mode: each batch is a transaction.
    """
    _, day_end = day_bounds(partition.day)
    are_raised = await raise_starts(conn, partition)
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
    return Expired(redelivery_count, skipped_count, is_complete=are_raised and left_behind == (False,))


async def raise_starts(conn: Connection, partition: DayPartition) -> bool:
    """Let queues begin behind the day; return whether all do. Those that somebody appends to are left as they are.

    Of queues that have newer messages no lock is needed: whoever has the append lock sees those, whatever becomes of
    this day; and before *their* day goes it has committed, or keeps it from going.
    """
    name = {"partition": sql.Identifier(partition.name)}
    find_reaching, raise_starts = sql.SQL(_FIND_REACHING).format(**name), sql.SQL(_RAISE_STARTS).format(**name)
    _, day_end = day_bounds(partition.day)
    reaching = await (await conn.execute(find_reaching, {"day_end": day_end})).fetchall()
    are_all = True
    for first in range(0, len(reaching), _QUEUES_AT_ONCE):
        some = reaching[first : first + _QUEUES_AT_ONCE]
        go_on = [queue_id for queue_id, goes_on in some if goes_on]
        end_here = [queue_id for queue_id, goes_on in some if not goes_on]
        async with conn.transaction():
            await say_dropping(conn, partition.day)
            locked = await _try_locks(conn, end_here)
            await conn.execute(raise_starts, {"queue_ids": go_on + locked})
        are_all = are_all and len(locked) == len(end_here)
    return are_all


async def _try_locks(conn: Connection, queue_ids: Sequence[int]) -> list[int]:
    """Take the append locks of these queues, until the transaction ends; return those that were free."""
    await conn.execute(_LIMIT, (f"{round(_HELD_SECONDS_MAX * 1_000)}",))
    keys = [queue_lock_key(queue_id) for queue_id in queue_ids]
    return [row[0] for row in await (await conn.execute(_TRY_LOCKS, {"queue_ids": queue_ids, "keys": keys})).fetchall()]


async def _count(conn: Connection, statement: str, parameters: Mapping[str, object]) -> int:
    row = await (await conn.execute(statement, parameters)).fetchone()
    return 0 if row is None else int(row[0])
