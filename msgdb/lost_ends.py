"""Lanes whose cursor lies beyond the end of its queue: the log lost its end under them.

A standby that is promoted without the last commits leaves brokers that know more than the database does. A checkpoint of
theirs then puts a cursor, ranges or redeliveries where the log has nothing yet, and what is stored there next would be
passed unseen. So a lane is brought back to the log's end by whoever claims it, before it reads anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from msgdb.array_rows import array_rows
from msgdb.connections import Connection
from msgdb.lane_records import LaneKey, OwnedLane


class LostEnd(NamedTuple):
    """What was beyond the log's end for one lane, and is no more."""

    key: LaneKey
    known_end: int
    """Up to where the lane had settled messages."""
    end: int
    """Where the log ends: nothing of the lane is beyond it now."""
    redeliveries: int
    """How many messages waited for another attempt there: they are gone from the log."""


# By the claimer, after its claim: nobody else writes the row. The statement's snapshot is younger than all that the
# earlier owner's checkpoints were based on, so an end below them was lost, and not only not seen yet. The redeliveries
# go, too: a row at an offset would keep the lane from the message that is stored there next.
_CLAMP: Final = f"""
WITH owned AS MATERIALIZED (
    SELECT c.group_id, c.member, c.queue_id, c.acked_offset, c.acked_ranges
    FROM {array_rows("w", group_id="bigint", member="text", queue_id="bigint", epoch="bigint")}
    JOIN cursor c ON c.group_id = w.group_id AND c.member = w.member AND c.queue_id = w.queue_id
                 AND c.epoch = w.epoch AND c.owner = %(owner)s
), tail AS MATERIALIZED (
    SELECT q.queue_id, greatest(q.start_offset, last.queue_offset + 1) AS next_offset
    FROM queue q
    LEFT JOIN LATERAL (
        SELECT m.queue_offset FROM message m WHERE m.queue_id = q.queue_id ORDER BY m.queue_offset DESC LIMIT 1
    ) last ON true
    WHERE q.queue_id = ANY(%(queue_id)s)
), beyond AS MATERIALIZED (
    SELECT o.group_id, o.member, o.queue_id, tail.next_offset,
           greatest(o.acked_offset, upper(o.acked_ranges)) AS known_end
    FROM owned o JOIN tail ON tail.queue_id = o.queue_id
    WHERE o.acked_offset > tail.next_offset OR upper(o.acked_ranges) > tail.next_offset
       OR EXISTS (SELECT 1 FROM redelivery r
                  WHERE r.group_id = o.group_id AND r.member = o.member AND r.queue_id = o.queue_id
                    AND r.queue_offset >= tail.next_offset)
), gone AS (
    DELETE FROM redelivery r USING beyond b
    WHERE r.group_id = b.group_id AND r.member = b.member AND r.queue_id = b.queue_id
      AND r.queue_offset >= b.next_offset
    RETURNING r.group_id, r.member, r.queue_id
)
UPDATE cursor c
SET acked_offset = least(c.acked_offset, b.next_offset),
    acked_ranges = c.acked_ranges * int8multirange(int8range(NULL, b.next_offset))
FROM beyond b
WHERE c.group_id = b.group_id AND c.member = b.member AND c.queue_id = b.queue_id AND c.owner = %(owner)s
RETURNING c.group_id, c.member, c.queue_id, b.known_end, b.next_offset,
          (SELECT count(*) FROM gone g
           WHERE g.group_id = c.group_id AND g.member = c.member AND g.queue_id = c.queue_id)
"""


async def clamp_to_ends(conn: Connection, owner: UUID, lanes: Sequence[OwnedLane]) -> list[LostEnd]:
    """Bring back to the end of its queue each of these lanes that is beyond it, and return those.

    Right after their claim, and before their redeliveries are loaded.
    """
    if not lanes:
        return []
    parameters = {
        "group_id": [lane.key.group_id for lane in lanes],
        "member": [lane.key.member for lane in lanes],
        "queue_id": [lane.key.queue_id for lane in lanes],
        "epoch": [lane.epoch for lane in lanes],
        "owner": owner,
    }
    # Never prepared: a plan made while a day was empty would read it from end to end when it is full.
    cursor = await conn.execute(_CLAMP, parameters, prepare=False)
    return [LostEnd(LaneKey(*row[:3]), *row[3:]) for row in await cursor.fetchall()]
