"""What a checkpoint writes: cursors, redeliveries, dead letters, each in one statement for all lanes.

`msgdb.cursors.checkpoint` puts them in one transaction, cursors first: the other statements are only given lanes whose
cursor matched owner and epoch, and holds its row lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgdb.array_rows import array_rows
from msgdb.binary_rows import datetime_of
from msgdb.connections import Connection
from msgdb.lane_records import DeadLetterMove, LaneCheckpoint, LaneKey, RedeliveryUpsert

_KEY: Final = {"group_id": "bigint", "member": "text", "queue_id": "bigint"}
_REDELIVERY: Final = {
    **_KEY,
    "queue_offset": "bigint",
    "stored_at": "timestamptz",
    "attempt": "integer",
    "due_in_seconds": "float8",
    "ordering_key": "text",
    "last_error": "text",
}
_DEAD_LETTER: Final = {
    "group_id": "bigint",
    "group_name": "text",
    "queue_id": "bigint",
    "queue_offset": "bigint",
    "stored_at": "timestamptz",
    "attempts": "integer",
    "reason": "text",
    "last_error": "text",
}

# One statement for every lane of this broker, by the primary key. A lane whose epoch moved on matches no row: its new
# owner decides, and the other lanes are not disturbed. An offset never goes down within an epoch (retention may have
# moved it up under the owner's feet; resetting it bumps the epoch). No indexed column changes: the update stays on its
# page (HOT).
MOVE_CURSORS: Final = f"""
UPDATE cursor c
SET acked_offset = greatest(c.acked_offset, owned.acked_offset), acked_ranges = owned.acked_ranges::int8multirange
FROM {array_rows("owned", **_KEY, epoch="bigint", acked_offset="bigint", acked_ranges="text")}
WHERE c.group_id = owned.group_id AND c.member = owned.member AND c.queue_id = owned.queue_id
  AND c.epoch = owned.epoch AND c.owner = %(owner)s
RETURNING c.group_id, c.member, c.queue_id
"""

# due_at by the database's clock, at the moment of writing.
UPSERT_REDELIVERIES: Final = f"""
INSERT INTO redelivery AS r
    (group_id, member, queue_id, queue_offset, stored_at, attempt, due_at, ordering_key, last_error)
SELECT w.group_id, w.member, w.queue_id, w.queue_offset, w.stored_at, w.attempt,
       clock_timestamp() + w.due_in_seconds * interval '1 second', w.ordering_key, w.last_error
FROM {array_rows("w", **_REDELIVERY)}
ON CONFLICT (group_id, member, queue_id, queue_offset) DO UPDATE
SET attempt = excluded.attempt, due_at = excluded.due_at, last_error = excluded.last_error
"""

# By the whole primary key.
DELETE_REDELIVERIES: Final = f"""
DELETE FROM redelivery r
USING {array_rows("w", **_KEY, queue_offset="bigint")}
WHERE r.group_id = w.group_id AND r.member = w.member AND r.queue_id = w.queue_id AND r.queue_offset = w.queue_offset
"""

# Copied inside the database, by the whole primary key of message: one probe of one day for each. Once: a checkpoint is
# written again when the answer to its COMMIT was lost.
COPY_DEAD_LETTERS: Final = f"""
INSERT INTO dead_letter
    (group_id, group_name, attempts, reason, last_error,
     queue_id, queue_offset, stored_at, message_id, namespace, topic, event_code, key, ordering_key, headers, body,
     born_at, born_host, publisher_group, stress, redrives)
SELECT w.group_id, w.group_name, w.attempts, w.reason, w.last_error,
       m.queue_id, m.queue_offset, m.stored_at, m.message_id, m.namespace, m.topic, m.event_code, m.key,
       m.ordering_key, m.headers, m.body, m.born_at, m.born_host, m.publisher_group, m.stress, m.redrives
FROM {array_rows("w", **_DEAD_LETTER)}
JOIN message m ON m.queue_id = w.queue_id AND m.queue_offset = w.queue_offset AND m.stored_at = w.stored_at
ON CONFLICT (group_id, queue_id, queue_offset, stored_at) DO NOTHING
"""


async def write_lanes(conn: Connection, checkpoints: Iterable[LaneCheckpoint], group_names: Mapping[int, str]) -> None:
    """Write redeliveries and dead letters of lanes whose cursors this transaction has moved."""
    upserts: list[tuple[LaneKey, RedeliveryUpsert]] = []
    done: list[tuple[LaneKey, int]] = []
    dead: list[tuple[LaneKey, DeadLetterMove]] = []
    for mark in checkpoints:
        upserts += [(mark.key, upsert) for upsert in mark.redeliveries]
        done += [(mark.key, queue_offset) for queue_offset in mark.redelivered]
        done += [(mark.key, move.queue_offset) for move in mark.dead_letters if move.had_row]
        dead += [(mark.key, move) for move in mark.dead_letters]
    # Deletions first: an offset that is in both is to wait again.
    if done:
        await _delete_redeliveries(conn, done)
    if upserts:
        await _upsert_redeliveries(conn, upserts)
    if dead:
        await _copy_dead_letters(conn, dead, group_names)


async def _upsert_redeliveries(conn: Connection, rows: Sequence[tuple[LaneKey, RedeliveryUpsert]]) -> None:
    await conn.execute(
        UPSERT_REDELIVERIES,
        {
            "group_id": [key.group_id for key, _ in rows],
            "member": [key.member for key, _ in rows],
            "queue_id": [key.queue_id for key, _ in rows],
            "queue_offset": [row.queue_offset for _, row in rows],
            "stored_at": [datetime_of(row.stored_at_us) for _, row in rows],
            "attempt": [row.attempt for _, row in rows],
            "due_in_seconds": [row.due_in_seconds for _, row in rows],
            "ordering_key": [row.ordering_key for _, row in rows],
            "last_error": [row.last_error for _, row in rows],
        },
    )


async def _delete_redeliveries(conn: Connection, rows: Sequence[tuple[LaneKey, int]]) -> None:
    await conn.execute(
        DELETE_REDELIVERIES,
        {
            "group_id": [key.group_id for key, _ in rows],
            "member": [key.member for key, _ in rows],
            "queue_id": [key.queue_id for key, _ in rows],
            "queue_offset": [queue_offset for _, queue_offset in rows],
        },
    )


async def _copy_dead_letters(
    conn: Connection, rows: Sequence[tuple[LaneKey, DeadLetterMove]], group_names: Mapping[int, str]
) -> None:
    await conn.execute(
        COPY_DEAD_LETTERS,
        {
            "group_id": [key.group_id for key, _ in rows],
            # A group that was deleted a moment ago has no name any more; its id says which it was.
            "group_name": [group_names.get(key.group_id, "") for key, _ in rows],
            "queue_id": [key.queue_id for key, _ in rows],
            "queue_offset": [row.queue_offset for _, row in rows],
            "stored_at": [datetime_of(row.stored_at_us) for _, row in rows],
            "attempts": [row.attempts for _, row in rows],
            "reason": [row.reason for _, row in rows],
            "last_error": [row.last_error for _, row in rows],
        },
        # A plan made while a day was empty would read it from end to end when it is full.
        prepare=False,
    )
