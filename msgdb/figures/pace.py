"""By how much further behind groups came between two minutes that were looked at, and by how much that matches."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from msgdb.figures.backlog import ROWS_MAX
from msgdb.postgres.connections import Connection


class BacklogChange(NamedTuple):
    """By how many messages a group came further behind on a topic; negative: it has caught up by so many."""

    group_id: int
    topic_id: int
    behind: int
    matching: float | None
    """How many of these match, about. None: on some queue of the topic nobody knows."""


# By the index on the minute: the rows of two of them. A lane that has no row in a minute was not behind. What a queue
# changed by matches as what is there does, or was: more of that says it better.
CHANGES: Final = """
WITH lane AS (
    SELECT group_id, coalesce(last.topic_id, first.topic_id) AS topic_id,
           coalesce(last.behind, 0) - coalesce(first.behind, 0) AS change,
           CASE
               WHEN first.behind > 0 AND first.matching IS NULL OR last.behind > 0 AND last.matching IS NULL THEN NULL
               WHEN coalesce(last.behind, 0) >= coalesce(first.behind, 0)
               THEN least(last.matching, last.behind)::float8 / nullif(last.behind, 0)
               ELSE least(first.matching, first.behind)::float8 / first.behind
           END AS share
    FROM (SELECT * FROM backlog_minute WHERE minute = %(first)s AND group_id <> 0) first
    FULL JOIN (SELECT * FROM backlog_minute WHERE minute = %(last)s AND group_id <> 0) last USING (group_id, queue_id)
)
SELECT group_id, topic_id, sum(change)::bigint,
       CASE WHEN bool_and(change = 0 OR share IS NOT NULL) THEN coalesce(sum(change * share), 0) END
FROM lane GROUP BY 1, 2 ORDER BY 1, 2 LIMIT %(limit)s
"""


async def list_changes(conn: Connection, first: datetime, last: datetime) -> list[BacklogChange]:
    """Return by how much groups came further behind from one minute to another; as many as `ROWS_MAX`."""
    parameters = {"first": first, "last": last, "limit": ROWS_MAX}
    rows = await conn.execute(CHANGES, parameters, prepare=False)
    return [BacklogChange._make(row) for row in await rows.fetchall()]
