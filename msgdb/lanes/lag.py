"""How far lanes are behind: for operators, by the tables alone. A broker knows more about the lanes it owns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from msgbroker.contract.limits import REDELIVERIES_PER_LANE_MAX
from msgdb.lanes.keys import same_lane
from msgdb.lanes.matching import behind, matching
from msgdb.lanes.records import LaneKey
from msgdb.log.ends import last_message, next_offset
from msgdb.postgres.binary_rows import TO_1970, binary_cursor
from msgdb.postgres.connections import Connection


class LaneLag(NamedTuple):
    """Where one lane stands, as of its last checkpoint."""

    group_id: int
    member: str
    queue_id: int
    topic_id: int
    generation: int
    ordinal: int
    acked_offset: int
    next_offset: int
    behind: int
    """How many messages of the log are neither settled nor moved to redelivery; those that will not match included."""
    redeliveries: int
    """How many messages wait for another attempt, or for a paused subscription."""
    shelved: int
    """How many of them wait for a paused subscription."""
    oldest_stored_at_us: int | None
    """When the oldest message was stored, of those behind and those that wait for another attempt."""
    matching: int | None
    """How many of `behind` the group will get, about, if it asks for `matching_asked` still. None: nobody knows."""
    matching_asked: int
    epoch: int
    owner: UUID | None
    lease_in_seconds: float | None
    """How long the owner's lease still runs; negative if it has passed."""

    @property
    def key(self) -> LaneKey:
        """Return the lane's name."""
        return LaneKey(self.group_id, self.member, self.queue_id)

    def matching_of(self, asked: int) -> int | None:
        """Return how many of `behind` a group will get, about, that asks for *asked* by now. None: nobody knows."""
        return self.matching if asked == self.matching_asked else None

    @property
    def unsettled(self) -> int:
        """Return how many messages are still to be settled."""
        return self.behind + self.redeliveries

    @property
    def alarm(self) -> bool:
        """Whether so many messages wait for another attempt that the lane reads no further."""
        return self.redeliveries >= REDELIVERIES_PER_LANE_MAX


# One statement for all lanes: per queue, one probe of the log's end; per lane, one probe at its cursor and a range of
# redelivery's primary key. Ranges are clipped to what is above the cursor: retention may have moved it into them.
_LAG: Final = f"""
WITH tail AS MATERIALIZED (
    SELECT q.queue_id, q.topic_id, q.generation, q.ordinal, q.start_offset,
           {next_offset("q", "last")} AS next_offset
    FROM queue q
    LEFT JOIN LATERAL {last_message("q.queue_id")} AS last ON true
    WHERE EXISTS (SELECT 1 FROM cursor c
                  WHERE c.queue_id = q.queue_id AND (%(all)s OR c.group_id = ANY(%(group_ids)s::bigint[])))
)
SELECT c.group_id, c.member, c.queue_id, tail.topic_id, tail.generation, tail.ordinal, c.acked_offset, tail.next_offset,
       behind.messages, waiting.redeliveries,
       waiting.shelved, least(waiting.oldest, unread.stored_at) + {TO_1970}, {matching()}, c.matching_asked,
       c.epoch, c.owner, extract(epoch FROM c.lease_until - clock_timestamp())::float8
FROM cursor c
JOIN tail ON tail.queue_id = c.queue_id
CROSS JOIN LATERAL (SELECT greatest(c.acked_offset, tail.start_offset) AS queue_offset) floor
CROSS JOIN LATERAL (
    SELECT coalesce(sum(upper(r) - lower(r)), 0)::bigint AS above
    FROM unnest(c.acked_ranges * int8multirange(int8range(floor.queue_offset, NULL))) r
) settled
CROSS JOIN LATERAL {behind("floor.queue_offset", "tail.next_offset", "settled.above")}
CROSS JOIN LATERAL (
    SELECT count(*) AS redeliveries, count(r.shelved_by) AS shelved, min(r.stored_at) AS oldest
    FROM redelivery r WHERE {same_lane("r", "c")}
) waiting
LEFT JOIN LATERAL (
    SELECT m.stored_at FROM message m
    WHERE m.queue_id = c.queue_id AND m.queue_offset >= floor.queue_offset AND floor.queue_offset < tail.next_offset
    ORDER BY m.queue_offset LIMIT 1
) unread ON true
WHERE %(all)s OR c.group_id = ANY(%(group_ids)s::bigint[])
ORDER BY c.group_id, c.member, c.queue_id
"""


async def list_lag(conn: Connection, group_ids: Sequence[int] | None = None) -> list[LaneLag]:
    """Return every lane of these groups (of all, if None) and how far it is behind."""
    cursor = binary_cursor(conn)
    await cursor.execute(_LAG, {"all": group_ids is None, "group_ids": list(group_ids or ())})
    rows = await cursor.fetchall()
    # The cursor loads ids as bytes; an owner is shown to people.
    return [LaneLag._make((*row[:-2], None if row[-2] is None else UUID(bytes=row[-2]), row[-1])) for row in rows]
