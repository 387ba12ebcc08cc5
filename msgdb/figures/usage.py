"""How many messages were published and delivered in each minute: written by brokers, each in rows of its own.

A row has all that one broker has counted of a minute so far, so writing it again changes nothing, and whoever asks adds
up the rows of all brokers. How far each broker has written is in `usage_broker`, written by the same statement: what a
broker that was killed took with it is told from there (`completeness`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple
from uuid import UUID

from psycopg import errors

from msgbroker.contract.limits import FIGURE_DAYS
from msgdb.figures.latency import CLASSES
from msgdb.log.partitions import ensure_for
from msgdb.postgres.array_rows import array_rows, integer_array, text_array
from msgdb.postgres.connections import Connection

NO_GROUP: Final = 0
"""The group of what is counted of publishing."""
MINUTE_US: Final = 60_000_000
ROWS_MAX: Final = 10_000
"""So many rows are returned to somebody who looks."""


class UsageRow(NamedTuple):
    """All that one broker has counted of a type of messages in a minute so far, for one group or of publishing."""

    minute_us: int
    topic_id: int
    group_id: int
    event_code: str
    stress: bool
    published: int = 0
    redriven: int = 0
    replayed: int = 0
    delivered: int = 0
    retried: int = 0
    dead_lettered: int = 0
    size_bytes: int = 0
    latency: Sequence[int] = ()
    lacks: bool = False
    """Whether something that belongs to this minute may not be counted."""


class UsageBroker(NamedTuple):
    """How far a broker has counted."""

    broker_id: UUID
    broker: str
    """Its address."""
    counted_until: datetime
    has_ended: bool
    """Whether it has ended in good order, with all it had counted written."""


class Usage(NamedTuple):
    """What all brokers have counted of a type of messages in some time, for one group or of publishing."""

    begins_at: datetime
    topic_id: int
    group_id: int
    event_code: str
    stress: bool
    published: int
    redriven: int
    replayed: int
    delivered: int
    retried: int
    dead_lettered: int
    size_bytes: int
    latency: Sequence[int]


class UsageOf(NamedTuple):
    """What is asked for."""

    since: datetime
    until: datetime
    step_seconds: int
    """Minutes are added up to stretches of so many seconds."""
    topic_ids: Sequence[int] | None = None
    group_ids: Sequence[int] | None = None


_KEY: Final = "minute, topic_id, group_id, event_code, stress, broker_id"
_COUNTS: Final = ("published", "redriven", "replayed", "delivered", "retried", "dead_lettered", "size_bytes")
_COLUMNS: Final = {
    "minute_us": "bigint",
    "topic_id": "bigint",
    "group_id": "bigint",
    "event_code": "text",
    "stress": "boolean",
    **dict.fromkeys(_COUNTS, "bigint"),
    "latency": "text",
    "lacks": "boolean",
}
# By the primary keys. No other broker writes these rows, so nobody waits for them; no updated column is in an index.
# The totals of before are replaced, not added to: where the answer to a commit was lost, the same is written again.
WRITE: Final = f"""
WITH written AS (
    INSERT INTO usage_minute AS u ({_KEY}, {", ".join(_COUNTS)}, latency, lacks)
    SELECT 'epoch'::timestamptz + a.minute_us * interval '1 microsecond', a.topic_id, a.group_id, a.event_code,
           a.stress, %(broker_id)s, {", ".join(f"a.{name}" for name in _COUNTS)}, a.latency::bigint[], a.lacks
    FROM {array_rows("a", **_COLUMNS)}
    ON CONFLICT ({_KEY}) DO UPDATE
    SET {", ".join(f"{name} = excluded.{name}" for name in (*_COUNTS, "latency", "lacks"))}
)
INSERT INTO usage_broker AS b (broker_id, broker, counted_until, has_ended)
VALUES (%(broker_id)s, %(broker)s, %(counted_until)s, %(has_ended)s)
ON CONFLICT (broker_id) DO UPDATE
SET counted_until = greatest(b.counted_until, excluded.counted_until), has_ended = excluded.has_ended
"""

_CLOCK: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

# By the primary key, whose first column is the minute, or by one of the two indexes for a topic or a group; days that
# are not asked for are left out. Never prepared: which of these is best depends on what is asked for.
READ: Final = f"""
SELECT to_timestamp(floor(extract(epoch FROM u.minute) / %(step_seconds)s) * %(step_seconds)s) AS begins_at,
       u.topic_id, u.group_id, u.event_code, u.stress,
       {", ".join(f"sum(u.{name})::bigint" for name in _COUNTS)},
       ARRAY[{", ".join(f"coalesce(sum(u.latency[{place}]), 0)::bigint" for place in range(1, CLASSES + 1))}]
FROM usage_minute u
WHERE u.minute >= %(since)s AND u.minute < %(until)s AND u.topic_id <> 0
  AND (%(topic_ids)s::bigint[] IS NULL OR u.topic_id = ANY(%(topic_ids)s::bigint[]))
  AND (%(group_ids)s::bigint[] IS NULL OR u.group_id = ANY(%(group_ids)s::bigint[]))
GROUP BY 1, 2, 3, 4, 5
ORDER BY 1, 2, 3, 4, 5
LIMIT %(limit)s
"""
# By the index on the topic: what is not of any topic says of a minute that it lacks something.
_READ_LACKING: Final = """
SELECT DISTINCT minute FROM usage_minute WHERE topic_id = 0 AND lacks AND minute >= %s AND minute < %s ORDER BY minute
"""
# The table has a row for each broker of the last weeks.
_READ_BROKERS: Final = "SELECT broker_id, broker, counted_until, has_ended FROM usage_broker ORDER BY counted_until"
_DELETE_OLD: Final = """
DELETE FROM usage_broker WHERE counted_until < clock_timestamp() - %(kept_days)s * interval '1 day'
"""


async def read_clock_us(conn: Connection) -> int:
    """Return what the store's clock shows."""
    row = await (await conn.execute(_CLOCK)).fetchone()
    assert row is not None, "it is one row"
    return int(row[0])


async def write_usage(conn: Connection, rows: Sequence[UsageRow], broker: UsageBroker) -> None:
    """Write what a broker has counted, and how far it has. A day that is missing is made."""
    parameters = {**_parameters(rows), **broker._asdict()}
    try:
        await conn.execute(WRITE, parameters)
    except errors.CheckViolation:
        for day in {datetime.fromtimestamp(row.minute_us / 1_000_000, UTC).date() for row in rows}:
            await ensure_for(conn, day)
        await conn.execute(WRITE, parameters)


def _parameters(rows: Sequence[UsageRow]) -> dict[str, str]:
    columns: dict[str, str] = {}
    for name, kind in _COLUMNS.items():
        values = [getattr(row, name) for row in rows]
        if name == "latency":
            values = [integer_array(latency) for latency in values]
        columns[name] = text_array(values) if kind == "text" else "{" + ",".join(map(str, values)) + "}"
    return columns


async def list_usage(conn: Connection, wanted: UsageOf, limit: int = ROWS_MAX) -> list[Usage]:
    """Return what was counted, in the order of time; so many rows at most."""
    parameters = {
        **wanted._asdict(),
        "topic_ids": None if wanted.topic_ids is None else list(wanted.topic_ids),
        "group_ids": None if wanted.group_ids is None else list(wanted.group_ids),
        "limit": limit,
    }
    cursor = await conn.execute(READ, parameters, prepare=False)
    return [Usage._make(row) for row in await cursor.fetchall()]


async def list_lacking(conn: Connection, since: datetime, until: datetime) -> list[datetime]:
    """Return the minutes of which some broker says that it may not have counted everything."""
    return [row[0] for row in await (await conn.execute(_READ_LACKING, (since, until))).fetchall()]


async def list_usage_brokers(conn: Connection) -> list[UsageBroker]:
    """Return how far each broker of the last weeks has counted."""
    return [UsageBroker._make(row) for row in await (await conn.execute(_READ_BROKERS)).fetchall()]


async def forget_usage_brokers(conn: Connection) -> None:
    """Delete what is known of brokers whose minutes are gone, too."""
    await conn.execute(_DELETE_OLD, {"kept_days": FIGURE_DAYS})
