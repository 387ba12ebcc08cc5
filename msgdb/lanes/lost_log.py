"""Bringing lanes back after the log lost its end under them.

A standby that is promoted without the last commits leaves brokers that know more than the database does. A checkpoint
of theirs then puts a cursor, ranges or redeliveries where the log has nothing, and what is stored there next would be
passed unseen. Whoever claims such a lane brings it back before it reads anything: not to where the log ends by now, for
something may be stored there anew already, but to what was stored shortly before. That comes again; nothing is skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final
from uuid import UUID

from msgdb.acts import write_act
from msgdb.lanes.keys import LANE_KEY, owned_columns, owned_lane, same_lane
from msgdb.lanes.records import LaneEpoch, LaneKey
from msgdb.lanes.reset_acts import PUT_BACK, detail_of_put_back
from msgdb.log.ends import last_message, next_offset
from msgdb.log.reads import offset_at_time
from msgdb.postgres.array_rows import array_rows
from msgdb.postgres.binary_rows import TO_1970, binary_cursor
from msgdb.postgres.connections import Connection

LOOK_BACK_SECONDS: Final = 30.0
"""The longest time between the first message after a loss and a broker that notices it: a lease, and some polls."""

# One probe of each log's end and of each lane's last redelivery. After the claim: the statement's snapshot is younger
# than all that an earlier owner's checkpoints were based on, so an end below them was lost, and not only not seen yet.
_FIND_BEYOND: Final = f"""
SELECT c.group_id, c.member, c.queue_id
FROM {array_rows("w", **LANE_KEY, epoch="bigint")}
JOIN cursor c ON {owned_lane("c", "w")}
JOIN queue q ON q.queue_id = c.queue_id
LEFT JOIN LATERAL {last_message("q.queue_id")} AS last ON true
LEFT JOIN LATERAL (
    SELECT r.queue_offset FROM redelivery r WHERE {same_lane("r", "c")}
    ORDER BY r.queue_offset DESC LIMIT 1
) waiting ON true
WHERE greatest(c.acked_offset, upper(c.acked_ranges), waiting.queue_offset + 1)
    > {next_offset("q", "last")}
"""

# The one write that takes an offset back within an epoch: before the epoch's owner has read anything.
_CLAMP: Final = f"""
UPDATE cursor c
SET acked_offset = least(c.acked_offset, w.end_offset),
    acked_ranges = c.acked_ranges * int8multirange(int8range(NULL, w.end_offset))
FROM {array_rows("w", **LANE_KEY, epoch="bigint", end_offset="bigint")}
WHERE {owned_lane("c", "w")}
RETURNING c.group_id, c.member, c.queue_id
"""

# A row at an offset would keep the lane from the message that is stored there next.
_FORGET_REDELIVERIES: Final = f"""
DELETE FROM redelivery r
USING {array_rows("w", **LANE_KEY, end_offset="bigint")}
WHERE {same_lane("r", "w")} AND r.queue_offset >= w.end_offset
RETURNING r.group_id, r.member, r.queue_id
"""

_NOW: Final = f"SELECT clock_timestamp() + {TO_1970}"


async def clamp_to_ends(
    conn: Connection,
    owner: UUID,
    lanes: Sequence[LaneEpoch],
    suspected: Collection[LaneKey] = (),
    look_back_seconds: float = LOOK_BACK_SECONDS,
) -> dict[LaneKey, int]:
    """Bring back those of *lanes* that are beyond the end of their queue, and those that are *suspected* to have been.

    Right after their claim, and before their redeliveries are loaded. Return where each of them begins now.
    """
    if not lanes:
        return {}
    # Never prepared: a plan made while a day was empty would read it from end to end when it is full.
    cursor = await conn.execute(_FIND_BEYOND, owned_columns(owner, lanes), prepare=False)
    beyond = {LaneKey(*row) for row in await cursor.fetchall()}
    wrong = [lane for lane in lanes if lane.key in beyond or lane.key in suspected]
    if not wrong:
        return {}
    ends = await _trusted_ends(conn, {lane.key.queue_id for lane in wrong}, look_back_seconds)
    async with conn.transaction():
        # First the cursors: their row locks keep others out, and a lane that is not ours any more is left alone.
        clamped = await _change(conn, _CLAMP, owner, wrong, ends)
        await _change(conn, _FORGET_REDELIVERIES, owner, [lane for lane in wrong if lane.key in clamped], ends)
        if clamped:
            # Whoever asks later what became of a message there learns that it was read once more.
            detail = detail_of_put_back([(key.group_id, key.queue_id, ends[key.queue_id]) for key in sorted(clamped)])
            thing = f"{len(clamped)} lane{'s' if len(clamped) != 1 else ''}"
            said = {"actor": f"broker {owner}", "reason": "the log had lost its end"}
            await write_act(conn, action=PUT_BACK, namespace=None, thing=thing, detail=detail, **said)
    return {key: ends[key.queue_id] for key in clamped}


async def _trusted_ends(conn: Connection, queue_ids: Collection[int], look_back_seconds: float) -> dict[int, int]:
    """Return, for each queue, the end of what was stored before the loss for certain."""
    cursor = binary_cursor(conn)
    await cursor.execute(_NOW)
    row = await cursor.fetchone()
    assert row is not None
    since_us = row[0] - int(look_back_seconds * 1_000_000)
    return {queue_id: await offset_at_time(conn, queue_id, since_us) for queue_id in sorted(queue_ids)}


async def _change(
    conn: Connection, statement: str, owner: UUID, lanes: Sequence[LaneEpoch], ends: Mapping[int, int]
) -> set[LaneKey]:
    end_offsets = [ends[lane.key.queue_id] for lane in lanes]
    cursor = await conn.execute(statement, {**owned_columns(owner, lanes), "end_offset": end_offsets})
    return {LaneKey(*row) for row in await cursor.fetchall()}
