"""Checkpoints of what lanes settled: cursors, redeliveries, dead letters, each in one statement for all of the lanes.

`prepare` makes the statements' parameters, before the transaction and without the database: of thousands of rows that
takes a while, in which nobody must wait for row locks. `checkpoint` carries them out in one transaction, cursors first:
the other statements are only given lanes whose cursor matched owner and epoch, and holds its row lock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from msgdb.dead_letters.copies import COPIED_COLUMNS, COPIED_FROM_MESSAGE
from msgdb.lanes.keys import LANE_KEY, Parameters, key_columns, owned_lane, same_lane
from msgdb.lanes.records import DeadLetterMove, LaneCheckpoint, LaneKey, RedeliveryUpsert
from msgdb.postgres.array_rows import array_rows, float_array, integer_array, text_array
from msgdb.postgres.connections import Connection

_CURSOR: Final = {
    **LANE_KEY,
    "epoch": "bigint",
    "acked_offset": "bigint",
    "acked_ranges": "text",
    "matching_asked": "bigint",
    "matching_share": "real",
    "matching_read": "real",
}
_REDELIVERY: Final = {
    **LANE_KEY,
    "queue_offset": "bigint",
    "stored_at_us": "bigint",
    "attempt": "integer",
    "due_in_seconds": "float8",
    "ordering_key": "text",
    "last_error": "text",
    "shelved_by": "text",
}
_DEAD_LETTER: Final = {
    "group_id": "bigint",
    "group_name": "text",
    "queue_id": "bigint",
    "queue_offset": "bigint",
    "stored_at_us": "bigint",
    "attempts": "integer",
    "reason": "text",
    "last_error": "text",
}
# Times come as integers: making datetimes of thousands costs more than all the rest.
_STORED_AT: Final = "'epoch'::timestamptz + w.stored_at_us * interval '1 microsecond'"

# One statement for every lane of this checkpoint, by the primary key. A lane whose epoch moved on matches no row: its
# new owner decides, and the other lanes are not disturbed. One whose row somebody has locked is passed over, and told
# apart: its progress is kept for the next checkpoint. An offset never goes down within an epoch (retention may have
# moved it up under the owner's feet; resetting it bumps the epoch). No indexed column changes: the update stays on its
# page (HOT).
#
# It answers with the lanes that were not moved, which are few.
MOVE_CURSORS: Final = f"""
WITH mine AS (
    SELECT * FROM {array_rows("mine", **_CURSOR)}
), free AS (
    SELECT c.group_id, c.member, c.queue_id, mine.acked_offset, mine.acked_ranges,
           mine.matching_asked, mine.matching_share, mine.matching_read
    FROM mine JOIN cursor c ON {owned_lane("c", "mine")}
    FOR NO KEY UPDATE OF c SKIP LOCKED
), moved AS (
    UPDATE cursor c
    SET acked_offset = greatest(c.acked_offset, free.acked_offset), acked_ranges = free.acked_ranges::int8multirange,
        matching_asked = free.matching_asked, matching_share = free.matching_share, matching_read = free.matching_read
    FROM free WHERE {same_lane("c", "free")}
    RETURNING c.group_id, c.member, c.queue_id, c.epoch
), others AS (
    SELECT group_id, member, queue_id, epoch FROM mine EXCEPT TABLE moved
)
SELECT others.group_id, others.member, others.queue_id, c.queue_id IS NOT NULL
FROM others LEFT JOIN cursor c ON {owned_lane("c", "others")}
"""

# due_at by the database's clock, at the moment of writing.
UPSERT_REDELIVERIES: Final = f"""
INSERT INTO redelivery AS r
    (group_id, member, queue_id, queue_offset, stored_at, attempt, due_at, ordering_key, last_error, shelved_by)
SELECT w.group_id, w.member, w.queue_id, w.queue_offset, {_STORED_AT}, w.attempt,
       clock_timestamp() + w.due_in_seconds * interval '1 second', w.ordering_key, w.last_error, w.shelved_by
FROM {array_rows("w", **_REDELIVERY)}
ON CONFLICT (group_id, member, queue_id, queue_offset) DO UPDATE
SET attempt = excluded.attempt, due_at = excluded.due_at, last_error = excluded.last_error,
    shelved_by = excluded.shelved_by
"""

# By the whole primary key.
DELETE_REDELIVERIES: Final = f"""
DELETE FROM redelivery r
USING {array_rows("w", **LANE_KEY, queue_offset="bigint")}
WHERE {same_lane("r", "w")} AND r.queue_offset = w.queue_offset
"""

# Copied inside the database, by the whole primary key of message: one probe of one day for each. Once: a checkpoint is
# written again when the answer to its COMMIT was lost.
COPY_DEAD_LETTERS: Final = f"""
INSERT INTO dead_letter (group_id, group_name, attempts, reason, last_error, {COPIED_COLUMNS})
SELECT w.group_id, w.group_name, w.attempts, w.reason, w.last_error, {COPIED_FROM_MESSAGE}
FROM {array_rows("w", **_DEAD_LETTER)}
JOIN message m ON m.queue_id = w.queue_id AND m.queue_offset = w.queue_offset AND m.stored_at = {_STORED_AT}
ON CONFLICT (group_id, queue_id, queue_offset, stored_at) DO NOTHING
"""


@dataclass(frozen=True, slots=True)
class PreparedCheckpoints:
    """Checkpoints of some lanes, as the statements take them."""

    checkpoints: Sequence[LaneCheckpoint]
    group_names: Mapping[int, str]
    cursors: Parameters
    done: Parameters | None
    upserts: Parameters | None
    dead_letters: Parameters | None

    def without(self, keys: Collection[LaneKey]) -> PreparedCheckpoints:
        """Return these checkpoints without those of some lanes."""
        return prepare([each for each in self.checkpoints if each.key not in keys], self.group_names)


def prepare(checkpoints: Sequence[LaneCheckpoint], group_names: Mapping[int, str]) -> PreparedCheckpoints:
    """Return *checkpoints* as the statements take them. Pure, and some milliseconds for each thousand of rows."""
    upserts: list[tuple[LaneKey, RedeliveryUpsert]] = []
    done: list[tuple[LaneKey, int]] = []
    dead: list[tuple[LaneKey, DeadLetterMove]] = []
    for each in checkpoints:
        upserts += [(each.key, upsert) for upsert in each.redeliveries]
        done += [(each.key, queue_offset) for queue_offset in each.redelivered]
        done += [(each.key, move.queue_offset) for move in each.dead_letters if move.had_row]
        dead += [(each.key, move) for move in each.dead_letters]
    return PreparedCheckpoints(
        checkpoints,
        group_names,
        cursors=_cursors(checkpoints),
        done=_done(done) if done else None,
        upserts=_upserts(upserts) if upserts else None,
        dead_letters=_dead_letters(dead, group_names) if dead else None,
    )


class Checkpointed(NamedTuple):
    """What became of checkpoints. The lanes in neither have another owner or epoch: nothing was written for them."""

    persisted: set[LaneKey]
    held_up: set[LaneKey]
    """The lanes that are still ours, but whose row somebody has locked: nothing was written, and it may be a moment
    later."""


async def checkpoint(conn: Connection, owner: UUID, prepared: PreparedCheckpoints) -> Checkpointed:
    """Persist the progress of lanes, all of it in the caller's transaction, and return what became of it.

    A dead letter of a message whose day was dropped is not written: the message is gone, and its expiry was recorded
    then. Raises RowsHeldError where somebody has locked redeliveries: nothing is written then.
    """
    if not prepared.checkpoints:
        return Checkpointed(set(), set())
    # First the cursors: until all that follows is committed, their row locks keep the lanes from a claim.
    cursor = await conn.execute(MOVE_CURSORS, {**prepared.cursors, "owner": owner}, binary=True)
    unmoved = {LaneKey(*key): is_ours for *key, is_ours in await cursor.fetchall()}
    if unmoved:
        prepared = prepared.without(unmoved.keys())
    await _write_lanes(conn, prepared)
    return Checkpointed({each.key for each in prepared.checkpoints}, {key for key, ours in unmoved.items() if ours})


async def _write_lanes(conn: Connection, prepared: PreparedCheckpoints) -> None:
    """Write redeliveries and dead letters of lanes whose cursors this transaction has moved."""
    # Deletions first: an offset that is in both is to wait again.
    if prepared.done is not None:
        await conn.execute(DELETE_REDELIVERIES, prepared.done)
    if prepared.upserts is not None:
        await conn.execute(UPSERT_REDELIVERIES, prepared.upserts)
    if prepared.dead_letters is not None:
        # A plan made while a day was empty would read it from end to end when it is full.
        await conn.execute(COPY_DEAD_LETTERS, prepared.dead_letters, prepare=False)


def _cursors(checkpoints: Sequence[LaneCheckpoint]) -> Parameters:
    return {
        **key_columns(each.key for each in checkpoints),
        "epoch": integer_array([each.epoch for each in checkpoints]),
        "acked_offset": integer_array([each.acked_offset for each in checkpoints]),
        "acked_ranges": text_array(
            "{" + ",".join(f"[{first},{last})" for first, last in each.acked_ranges) + "}" for each in checkpoints
        ),
        "matching_asked": integer_array([each.matching.asked for each in checkpoints]),
        "matching_share": float_array([each.matching.share for each in checkpoints]),
        "matching_read": float_array([each.matching.read for each in checkpoints]),
    }


def _upserts(rows: Sequence[tuple[LaneKey, RedeliveryUpsert]]) -> Parameters:
    return {
        **key_columns(key for key, _ in rows),
        "queue_offset": integer_array([row.queue_offset for _, row in rows]),
        "stored_at_us": integer_array([row.stored_at_us for _, row in rows]),
        "attempt": integer_array([row.attempt for _, row in rows]),
        "due_in_seconds": float_array([row.due_in_seconds for _, row in rows]),
        "ordering_key": text_array([row.ordering_key for _, row in rows]),
        "last_error": text_array([row.last_error for _, row in rows]),
        "shelved_by": text_array([row.shelved_by for _, row in rows]),
    }


def _done(rows: Sequence[tuple[LaneKey, int]]) -> Parameters:
    return {
        **key_columns(key for key, _ in rows),
        "queue_offset": integer_array([queue_offset for _, queue_offset in rows]),
    }


def _dead_letters(rows: Sequence[tuple[LaneKey, DeadLetterMove]], group_names: Mapping[int, str]) -> Parameters:
    return {
        "group_id": integer_array([key.group_id for key, _ in rows]),
        # A group that was deleted a moment ago has no name any more; its id says which it was.
        "group_name": text_array([group_names.get(key.group_id, "") for key, _ in rows]),
        "queue_id": integer_array([key.queue_id for key, _ in rows]),
        "queue_offset": integer_array([row.queue_offset for _, row in rows]),
        "stored_at_us": integer_array([row.stored_at_us for _, row in rows]),
        "attempts": integer_array([row.attempts for _, row in rows]),
        "reason": text_array([row.reason for _, row in rows]),
        "last_error": text_array([row.last_error for _, row in rows]),
    }
