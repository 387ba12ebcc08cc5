"""Dead letters for jobs: counted before one begins, chosen some at a time, read with their messages, deleted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any, Final, NamedTuple

from msgdb.dead_letters.wanted import AHEAD, CONDITIONS, LETTERS, WantedDeadLetters
from msgdb.postgres.array_rows import array_rows
from msgdb.postgres.binary_rows import TO_1970, binary_cursor
from msgdb.postgres.connections import Connection

SCANNED_MAX: Final = 5_000
"""So many are looked at in one step of a job: where conditions leave out most of them it goes on with the next step."""


class DeadLetterSum(NamedTuple):
    """How many dead letters of one kind are meant."""

    group_id: int
    group_name: str
    namespace: str
    topic: str
    event_code: str
    stress: bool
    letters: int
    redriven: int
    """How many of them were redriven already."""
    last_id: int


class ChosenDeadLetters(NamedTuple):
    """The dead letters of one step of a job."""

    ids: list[int]
    through_id: int
    """All that are meant up to this one are done with this step."""
    is_end: bool
    """Whether there are none behind it."""


class BuriedMessage(NamedTuple):
    """The message of a dead letter, as it is stored once more."""

    dead_letter_id: int
    group_id: int
    group_name: str
    message_id: bytes
    namespace: str
    topic: str
    event_code: str
    key: str | None
    ordering_key: str | None
    headers: dict[str, str] | None
    body: bytes
    born_at_us: int
    born_host: str | None
    publisher_group: str | None
    stress: bool
    redrives: int


class Landing(NamedTuple):
    """Where a dead letter's message was stored once more; None: it was, and where is not known any more."""

    dead_letter_id: int
    queue_id: int | None
    queue_offset: int | None


# Of many it reads the whole table: whoever asks gives it time for that.
_COUNT: Final = f"""
SELECT d.group_id, max(d.group_name), d.namespace, d.topic, d.event_code, d.stress, count(*),
       count(*) FILTER (WHERE EXISTS (SELECT 1 FROM redrive done WHERE done.dead_letter_id = d.id)), max(d.id)
FROM dead_letter d WHERE {CONDITIONS}
GROUP BY d.group_id, d.namespace, d.topic, d.event_code, d.stress
ORDER BY count(*) DESC, d.group_id, d.topic, d.event_code, d.stress
"""

# It looks at dead letters until it has enough of them; only where it has not, it asks how far it got, in the same
# snapshot. Sizes are summed up in the order of the ids: a body that is over the bound is never read, but the first
# passes whatever its size.
_CHOOSE: Final = f"""
WITH found AS MATERIALIZED (
    SELECT d.id, octet_length(d.body) AS body_bytes FROM {AHEAD} {LETTERS}
    WHERE {CONDITIONS} ORDER BY near.id LIMIT %(limit)s + 1
), sized AS (
    SELECT id, row_number() OVER by_id AS number, sum(body_bytes) OVER by_id AS bytes_up_to_here
    FROM found WINDOW by_id AS (ORDER BY id ROWS UNBOUNDED PRECEDING)
), fitting AS (
    SELECT id FROM sized WHERE number <= %(limit)s AND (number = 1 OR bytes_up_to_here <= %(bytes_max)s)
), chosen AS MATERIALIZED (
    SELECT coalesce(array_agg(id ORDER BY id), '{{}}') AS ids, count(*) < (SELECT count(*) FROM found) AS are_more
    FROM fitting
)
SELECT chosen.ids, chosen.are_more, looked_at.number, looked_at.through_id
FROM chosen, LATERAL (
    SELECT count(*) AS number, max(near.id) AS through_id FROM {AHEAD} WHERE NOT chosen.are_more
) looked_at
"""

_READ: Final = f"""
SELECT id, group_id, group_name, message_id, namespace, topic, event_code, key, ordering_key, headers, body,
       born_at + {TO_1970}, born_host, publisher_group, stress, redrives
FROM dead_letter WHERE id = ANY(%s) ORDER BY id
"""

# One that was purged meanwhile has nothing to be noted of.
_NOTE: Final = f"""
INSERT INTO redrive (dead_letter_id, job_id, queue_id, queue_offset)
SELECT w.dead_letter_id, %(job_id)s, w.queue_id, w.queue_offset
FROM {array_rows("w", dead_letter_id="bigint", queue_id="bigint", queue_offset="bigint")}
JOIN dead_letter d ON d.id = w.dead_letter_id
ON CONFLICT (dead_letter_id, job_id) DO NOTHING
"""

_COUNT_BY_DAY: Final = f"""
SELECT (d.died_at AT TIME ZONE 'UTC')::date, count(*) FROM dead_letter d WHERE {CONDITIONS} GROUP BY 1 ORDER BY 1
"""
_DAYS: Final = """
SELECT (died_at AT TIME ZONE 'UTC')::date, array_agg(id) FROM dead_letter WHERE id = ANY(%s) GROUP BY 1 ORDER BY 1
"""
# In the order of the ids, like everybody who deletes some of them: maintenance passes over what is locked.
_DELETE: Final = """
DELETE FROM dead_letter WHERE id IN (SELECT id FROM dead_letter WHERE id = ANY(%s) ORDER BY id FOR UPDATE)
"""


async def count_wanted(conn: Connection, wanted: WantedDeadLetters) -> list[DeadLetterSum]:
    """Return how many dead letters are *wanted*, by group and type; the largest sums first."""
    cursor = await conn.execute(_COUNT, wanted.parameters(), prepare=False)
    return [DeadLetterSum._make(row) for row in await cursor.fetchall()]


async def count_by_day(conn: Connection, wanted: WantedDeadLetters) -> dict[date, int]:
    """Return how many dead letters are *wanted*, by the day they died, in UTC."""
    cursor = await conn.execute(_COUNT_BY_DAY, wanted.parameters(), prepare=False)
    return dict(await cursor.fetchall())


async def choose_next(
    conn: Connection, wanted: WantedDeadLetters, *, after_id: int, last_id: int, limit: int, bytes_max: int
) -> ChosenDeadLetters:
    """Return the next that are *wanted*, from behind *after_id* up to *last_id*: of *bytes_max*, or one."""
    parameters: dict[str, Any] = {
        **wanted.parameters(),
        "after_id": after_id,
        "last_id": last_id,
        "limit": limit,
        "bytes_max": bytes_max,
        "scanned_max": SCANNED_MAX,
    }
    row = await (await conn.execute(_CHOOSE, parameters, prepare=False)).fetchone()
    assert row is not None, "one row is returned"
    ids, are_more, scanned, scanned_id = row
    if are_more:
        return ChosenDeadLetters(ids, ids[-1], is_end=False)
    if scanned == SCANNED_MAX:
        return ChosenDeadLetters(ids, scanned_id, is_end=False)
    return ChosenDeadLetters(ids, last_id, is_end=True)


async def read_buried(conn: Connection, dead_letter_ids: Sequence[int]) -> list[BuriedMessage]:
    """Return the messages of these dead letters, by id; of those that are purged there is none."""
    cursor = binary_cursor(conn)
    await cursor.execute(_READ, (list(dead_letter_ids),))
    return [BuriedMessage._make(row) for row in await cursor.fetchall()]


async def note_redriven(conn: Connection, job_id: int, landings: Sequence[Landing]) -> None:
    """Note that these dead letters were delivered again. A repeat changes nothing."""
    columns = {name: [getattr(landing, name) for landing in landings] for name in Landing._fields}
    await conn.execute(_NOTE, {**columns, "job_id": job_id})


async def days_of(conn: Connection, dead_letter_ids: Sequence[int]) -> dict[date, list[int]]:
    """Return these dead letters by the day they died, in UTC; those that are purged are left out."""
    cursor = await conn.execute(_DAYS, (list(dead_letter_ids),))
    return dict(await cursor.fetchall())


async def purge_dead_letters(conn: Connection, dead_letter_ids: Sequence[int]) -> int:
    """Delete these for good, with what was noted of them, and return how many there were."""
    cursor = await conn.execute(_DELETE, (list(dead_letter_ids),))
    return cursor.rowcount
