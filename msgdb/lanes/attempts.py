"""How many of a group's messages wait for which attempt: what another maximum of attempts would do to them."""

from __future__ import annotations

from typing import Final

from msgdb.lanes.keys import same_lane
from msgdb.postgres.connections import Connection

# The group's cursors by the beginning of their primary key, then the redeliveries of each by that of theirs, of which a
# lane has ten thousand at most. What only paused subscriptions want was not tried yet. Locks nothing. One row for each
# attempt, of which there are as many as a group may make.
_COUNT: Final = f"""
SELECT waiting.attempt, sum(waiting.messages)::bigint FROM cursor c
CROSS JOIN LATERAL (
    SELECT r.attempt, count(*) AS messages FROM redelivery r
    WHERE {same_lane("r", "c")} AND r.shelved_by IS NULL GROUP BY r.attempt
) waiting
WHERE c.group_id = %(group_id)s
GROUP BY waiting.attempt ORDER BY waiting.attempt
"""


async def count_by_attempt(conn: Connection, group_id: int) -> dict[int, int]:
    """Return how many messages of a group wait, by the attempt that comes next; as of the last checkpoint."""
    # Never prepared: with its value the planner sees how few rows a group has.
    cursor = await conn.execute(_COUNT, {"group_id": group_id}, prepare=False)
    return dict(await cursor.fetchall())
