"""How far groups are behind, looked at every ten seconds by one broker for all of them, and kept for each minute.

It is looked at in the store, not in the brokers' memory: so groups without an instance are seen as well, lanes that
move are seen once, and it does not matter which broker looks, or that one dies. What the store does not know (who
subscribes to what, and from where on) the broker that looks says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple
from uuid import UUID

from psycopg import errors

from msgdb.lanes.matching import behind, matching
from msgdb.locks import BACKLOG_LOCK_CLASS
from msgdb.log.ends import last_message, next_offset
from msgdb.log.partitions import ensure_for
from msgdb.postgres.array_rows import array_rows, integer_array, text_array
from msgdb.postgres.connections import Connection

LATE_SECONDS: Final = 60.0
"""A group is late on a queue where a message that it has not settled, nor tried, was stored longer ago."""
ROWS_MAX: Final = 10_000
"""So many rows are returned to somebody who looks."""
_LATEST_MINUTES: Final = 5
"""What was looked at longer ago says nothing of now."""


class Reading(NamedTuple):
    """That a group reads a topic, and from where on in each queue."""

    group_id: int
    topic_id: int
    starts: Mapping[int, int]
    """The offset that its first subscription starts at, by queue_id. A queue that is not named starts at 0."""
    asked: int = 0
    """What its subscriptions ask for there, as a number: a share that was learnt of something else says nothing."""


class Backlog(NamedTuple):
    """How far a group was behind on a topic, when that was last looked at in a minute."""

    minute: datetime
    group_id: int
    topic_id: int
    behind: int
    behind_max: int
    """The most that any look in the minute found, added up over the queues."""
    redeliveries: int
    oldest_at: datetime | None
    """When the oldest message was stored that was not settled."""
    late_since: datetime | None
    """When the message was stored with which it began to be late, if it was."""
    matching: int | None
    """How many of `behind` it will get, about: on the queues of which that is known. None: it is of none."""
    matching_unknown: int
    """How many of `behind` lie on the other queues."""


class LateLane(NamedTuple):
    """A group that is late on a queue, as of the last minutes."""

    group_id: int
    queue_id: int
    late_since: datetime


_READINGS: Final = {"group_id": "bigint", "topic_id": "bigint", "starts": "text", "asked": "bigint"}

# For each lane: a probe of the log's end and of the cursor, a range of redelivery's primary key, and for those that are
# behind a probe of the log at the cursor and one of what was last written. All by primary keys, and by no join of two
# long lists: so it takes as long for each lane whatever there are of others (a LIMIT keeps the planner from looking for
# the cursors of all groups at once). It takes no row locks but those of the rows it writes, and nobody else writes
# these: of two brokers that look at once the second finds the lock taken.
LOOK: Final = f"""
WITH turn AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock({BACKLOG_LOCK_CLASS}, 0) AND NOT EXISTS (
        SELECT 1 FROM usage_broker b WHERE b.looked_at > clock_timestamp() - %(apart_seconds)s * interval '1 second'
    ) AS is_ours
), lane AS MATERIALIZED (
    SELECT g.group_id, q.queue_id, q.topic_id, waiting.redeliveries,
           behind.messages AS behind, {matching("g.asked")} AS matching,
           unread.stored_at AS unread_at, least(waiting.oldest, unread.stored_at) AS oldest_at
    FROM {array_rows("g", **_READINGS)}
    JOIN queue q ON q.topic_id = g.topic_id
    LEFT JOIN LATERAL {last_message("q.queue_id")} tail ON true
    LEFT JOIN LATERAL (
        SELECT c.acked_offset, c.acked_ranges, c.matching_asked, c.matching_share, c.matching_read FROM cursor c
        WHERE c.group_id = g.group_id AND c.member = '' AND c.queue_id = q.queue_id LIMIT 1
    ) c ON true
    CROSS JOIN LATERAL (
        SELECT greatest(coalesce(c.acked_offset, (g.starts::jsonb ->> q.queue_id::text)::bigint, 0), q.start_offset)
               AS queue_offset
    ) floor
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(upper(r) - lower(r)), 0)::bigint AS above
        FROM unnest(c.acked_ranges * int8multirange(int8range(floor.queue_offset, NULL))) r
    ) settled
    CROSS JOIN LATERAL {behind("floor.queue_offset", next_offset("q", "tail"), "settled.above")}
    CROSS JOIN LATERAL (
        SELECT count(*) AS redeliveries, min(r.stored_at) AS oldest
        FROM redelivery r WHERE r.group_id = g.group_id AND r.member = '' AND r.queue_id = q.queue_id
    ) waiting
    LEFT JOIN LATERAL (
        SELECT m.stored_at FROM message m
        WHERE m.queue_id = q.queue_id AND m.queue_offset >= floor.queue_offset
          AND floor.queue_offset < {next_offset("q", "tail")}
        ORDER BY m.queue_offset LIMIT 1
    ) unread ON true
    WHERE (SELECT is_ours FROM turn)
), written AS (
    INSERT INTO backlog_minute AS b
        (group_id, queue_id, minute, topic_id, behind, behind_max, redeliveries, oldest_at, late_since, matching)
    SELECT lane.group_id, lane.queue_id, date_trunc('minute', now()), lane.topic_id, lane.behind, lane.behind,
           lane.redeliveries, lane.oldest_at,
           CASE WHEN lane.unread_at < now() - {LATE_SECONDS} * interval '1 second'
                THEN coalesce(last.late_since, lane.unread_at) END,
           lane.matching
    FROM lane
    LEFT JOIN LATERAL (
        SELECT l.behind + l.redeliveries AS unsettled, l.late_since FROM backlog_minute l
        WHERE l.group_id = lane.group_id AND l.queue_id = lane.queue_id
          AND l.minute > now() - interval '2 days' AND l.minute <= now()
        ORDER BY l.minute DESC LIMIT 1
    ) last ON true
    WHERE lane.behind > 0 OR lane.redeliveries > 0 OR last.unsettled > 0
    UNION ALL
    SELECT 0, 0, date_trunc('minute', now()), 0, coalesce(sum(lane.behind), 0), coalesce(sum(lane.behind), 0),
           coalesce(sum(lane.redeliveries), 0), min(lane.oldest_at), NULL, NULL
    FROM lane HAVING (SELECT is_ours FROM turn)
    ON CONFLICT (group_id, queue_id, minute) DO UPDATE
    SET behind = excluded.behind, behind_max = greatest(b.behind_max, excluded.behind),
        redeliveries = excluded.redeliveries, oldest_at = excluded.oldest_at, late_since = excluded.late_since,
        matching = excluded.matching
)
SELECT is_ours FROM turn
"""
# By itself: within the look it would keep the broker from writing what it has counted, for as long as that takes. A
# look that begins in between is one too many, and changes nothing.
_NOTE_LOOK: Final = "UPDATE usage_broker SET looked_at = clock_timestamp() WHERE broker_id = %s"

# Where brokers of an earlier version look as well, an estimate may be older than what is behind.
#
# By the index on the minute, or by the primary key for a group. Never prepared: which is best depends on what is asked.
READ: Final = """
SELECT b.minute, b.group_id, b.topic_id, sum(b.behind)::bigint, sum(b.behind_max)::bigint, sum(b.redeliveries)::bigint,
       min(b.oldest_at), min(b.late_since), CASE WHEN sum(b.behind) = 0 THEN 0 ELSE sum(known.matching)::bigint END,
       coalesce(sum(b.behind) FILTER (WHERE known.matching IS NULL), 0)::bigint
FROM backlog_minute b
CROSS JOIN LATERAL (
    SELECT CASE WHEN b.behind > 0 AND b.matching IS NOT NULL THEN least(b.matching, b.behind) END AS matching
) known
WHERE b.minute >= %(since)s AND b.minute < %(until)s AND b.group_id <> 0
  AND (%(group_ids)s::bigint[] IS NULL OR b.group_id = ANY(%(group_ids)s::bigint[]))
  AND (%(topic_ids)s::bigint[] IS NULL OR b.topic_id = ANY(%(topic_ids)s::bigint[]))
GROUP BY 1, 2, 3
ORDER BY 1 DESC, 2, 3
LIMIT %(limit)s
"""
# By the primary key: the row that says that a minute was looked at.
_READ_LOOKED_AT: Final = """
SELECT minute FROM backlog_minute
WHERE group_id = 0 AND queue_id = 0 AND minute >= %(since)s AND minute < %(until)s ORDER BY minute
"""
# By the index on the minute: a few rows of each lane that is, or was a moment ago, behind.
_READ_LATE: Final = f"""
SELECT group_id, queue_id, late_since FROM (
    SELECT DISTINCT ON (group_id, queue_id) group_id, queue_id, late_since FROM backlog_minute
    WHERE minute > now() - interval '{_LATEST_MINUTES} minutes' AND group_id <> 0
    ORDER BY group_id, queue_id, minute DESC
) latest
WHERE late_since IS NOT NULL
"""


def readings_parameters(readings: Sequence[Reading]) -> dict[str, str]:
    """Return who reads what as `look` takes it: worth keeping, as long as the configuration stays as it is."""
    return {
        "group_id": integer_array([each.group_id for each in readings]),
        "topic_id": integer_array([each.topic_id for each in readings]),
        "starts": text_array([json.dumps(each.starts) for each in readings]),
        "asked": integer_array([each.asked for each in readings]),
    }


async def look(conn: Connection, broker_id: UUID, readings: Mapping[str, str], *, apart_seconds: float) -> bool:
    """Look how far groups are behind, and write it down; return whether it was done.

    It is not where another broker is at it, or was less than *apart_seconds* ago.
    """
    parameters = {**readings, "apart_seconds": apart_seconds}
    try:
        cursor = await conn.execute(LOOK, parameters, prepare=False)
    except errors.CheckViolation:
        await ensure_for(conn, datetime.now(UTC).date())
        cursor = await conn.execute(LOOK, parameters, prepare=False)
    row = await cursor.fetchone()
    is_done = row is not None and bool(row[0])
    if is_done:
        await conn.execute(_NOTE_LOOK, (broker_id,))
    return is_done


async def list_backlog(
    conn: Connection,
    since: datetime,
    until: datetime,
    *,
    group_ids: Sequence[int] | None = None,
    topic_ids: Sequence[int] | None = None,
    limit: int = ROWS_MAX,
) -> list[Backlog]:
    """Return how far groups were behind on each topic, minute by minute, the last one first.

    A group that is not named in a minute that was looked at was not behind.
    """
    parameters = {
        "since": since,
        "until": until,
        "group_ids": None if group_ids is None else list(group_ids),
        "topic_ids": None if topic_ids is None else list(topic_ids),
        "limit": limit,
    }
    cursor = await conn.execute(READ, parameters, prepare=False)
    return [Backlog._make(row) for row in await cursor.fetchall()]


async def list_looked_at(conn: Connection, since: datetime, until: datetime) -> list[datetime]:
    """Return the minutes in which some broker looked how far groups are behind."""
    cursor = await conn.execute(_READ_LOOKED_AT, {"since": since, "until": until}, prepare=False)
    return [row[0] for row in await cursor.fetchall()]


async def list_late(conn: Connection) -> list[LateLane]:
    """Return the lanes that are late, as of the last look at them."""
    return [LateLane._make(row) for row in await (await conn.execute(_READ_LATE, prepare=False)).fetchall()]
