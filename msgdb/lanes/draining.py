"""What of a group is not settled yet below an end of each queue, by what is stored: for those who wait until it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgdb.lanes.keys import same_lane
from msgdb.log.beginnings import FIRST_KEEPER
from msgdb.postgres.array_rows import array_rows
from msgdb.postgres.connections import Connection


class LaneEnd(NamedTuple):
    """Up to where a lane is to be settled, and where it begins, should nobody have served it yet."""

    queue_id: int
    end_offset: int
    initial_offset: int


class LaneLeft(NamedTuple):
    """What of a lane is not settled below its end."""

    queue_id: int
    behind: int
    """Messages that are neither settled nor have a redelivery row: not read yet, or with an instance."""
    redeliveries: int
    """Messages that wait for another attempt, or are with an instance for one."""
    shelved: int
    """Messages that wait for paused subscriptions."""
    next_due_in_seconds: float | None
    """When the first of the redeliveries is due, ..."""
    last_due_in_seconds: float | None
    """... and when the last one is."""
    is_served: bool
    """Whether a broker has the lane."""

    @property
    def unsettled(self) -> int:
        """How many messages are left."""
        return self.behind + self.redeliveries + self.shelved


# One row for each queue: the cursor by its primary key, the redeliveries by the beginning of theirs, of which a lane
# has ten thousand at most. What lies below the queue's start was dropped with its day. A version of the configuration
# that keeps a beginning is no broker.
_FIND_LEFT: Final = f"""
SELECT w.queue_id, greatest(0, w.end_offset - floor.queue_offset - settled.above),
       waiting.redeliveries - waiting.shelved, waiting.shelved, waiting.next_due, waiting.last_due,
       coalesce(c.owner < %(first_keeper)s AND c.lease_until > clock_timestamp(), false)
FROM {array_rows("w", queue_id="bigint", end_offset="bigint", initial_offset="bigint")}
JOIN queue q ON q.queue_id = w.queue_id
LEFT JOIN cursor c ON c.group_id = %(group_id)s AND c.member = '' AND c.queue_id = w.queue_id
CROSS JOIN LATERAL (
    SELECT least(w.end_offset, greatest(coalesce(c.acked_offset, w.initial_offset), q.start_offset)) AS queue_offset
) floor
CROSS JOIN LATERAL (
    SELECT coalesce(sum(upper(r) - lower(r)), 0)::bigint AS above
    FROM unnest(c.acked_ranges * int8multirange(int8range(floor.queue_offset, w.end_offset))) r
) settled
CROSS JOIN LATERAL (
    SELECT count(*) AS redeliveries, count(r.shelved_by) AS shelved,
           extract(epoch FROM min(r.due_at) FILTER (WHERE r.shelved_by IS NULL) - clock_timestamp())::float8
               AS next_due,
           extract(epoch FROM max(r.due_at) FILTER (WHERE r.shelved_by IS NULL) - clock_timestamp())::float8
               AS last_due
    FROM redelivery r WHERE {same_lane("r", "c")} AND r.queue_offset < w.end_offset
) waiting
ORDER BY w.queue_id
"""


async def find_left(conn: Connection, group_id: int, ends: Sequence[LaneEnd]) -> list[LaneLeft]:
    """Return what a group has not settled below these ends, as of the last checkpoint, by queue."""
    parameters = {
        "group_id": group_id,
        "queue_id": [each.queue_id for each in ends],
        "end_offset": [each.end_offset for each in ends],
        "initial_offset": [each.initial_offset for each in ends],
        "first_keeper": FIRST_KEEPER,
    }
    # Never prepared: with its values the planner sees how few rows there are.
    rows = await (await conn.execute(_FIND_LEFT, parameters, prepare=False)).fetchall()
    return [LaneLeft._make(row) for row in rows]
