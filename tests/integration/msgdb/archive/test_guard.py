"""The guard on `queue`: whoever does not know of the archive raises no start while it is required."""

from __future__ import annotations

from datetime import date

import psycopg
import pytest

from msgdb.archive.permits import say_dropping
from msgdb.archive.policy import require, stop_requiring
from msgdb.archive.records import DayState
from msgdb.names import DEAD_LETTER, MESSAGE
from msgdb.postgres.connections import Connection
from tests.support.archive_runs import ACTOR, days_ago, put_on
from tests.support.rows import make_queue

DAY = days_ago(8)

# As a broker of version 0.9 raises them, word for word.
RAISE_STARTS = f"""
UPDATE queue q SET start_offset = last.queue_offset + 1
FROM unnest(%(queue_ids)s::bigint[]) AS w (queue_id)
CROSS JOIN LATERAL (
        SELECT m.queue_offset, m.stored_at FROM "message_p{DAY:%Y%m%d}" AS m WHERE m.queue_id = w.queue_id
        ORDER BY m.queue_offset DESC LIMIT 1
    ) AS last
WHERE q.queue_id = w.queue_id AND q.start_offset <= last.queue_offset
"""


@pytest.fixture
async def queue_id(conn: Connection) -> int:
    """Store some messages of a day that is to go."""
    queue_id = await make_queue(conn)
    await put_on(conn, queue_id, range(5), DAY)
    return queue_id


async def start_of(conn: Connection, queue_id: int) -> int:
    rows = await (await conn.execute("SELECT start_offset FROM queue WHERE queue_id = %s", (queue_id,))).fetchall()
    start: int = rows[0][0]
    return start


async def raise_starts(conn: Connection, queue_id: int, dropping: date | None = None) -> None:
    async with conn.transaction():
        if dropping is not None:
            await say_dropping(conn, dropping)
        await conn.execute(RAISE_STARTS, {"queue_ids": [queue_id]})


async def let_be(conn: Connection, state: DayState, day: date = DAY, table: str = MESSAGE) -> None:
    await conn.execute("INSERT INTO archive_day (table_name, day, state) VALUES (%s, %s, %s)", (table, day, state))


async def assert_refused(conn: Connection, queue_id: int, dropping: date | None = None) -> None:
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="does not know of the archive"):
        await raise_starts(conn, queue_id, dropping)
    assert await start_of(conn, queue_id) == 0


async def test_an_earlier_version_raises_starts_where_nothing_is_required(conn: Connection, queue_id: int) -> None:
    await require(conn, DEAD_LETTER, actor=ACTOR, reason="audit")

    await raise_starts(conn, queue_id)

    assert await start_of(conn, queue_id) == 5


async def test_an_earlier_version_raises_none_while_messages_must_be_archived(conn: Connection, queue_id: int) -> None:
    await require(conn, MESSAGE, actor=ACTOR, reason="audit")
    await let_be(conn, DayState.DROPPING)

    await assert_refused(conn, queue_id)

    await stop_requiring(conn, MESSAGE, actor=ACTOR, reason="no disk")
    await raise_starts(conn, queue_id)
    assert await start_of(conn, queue_id) == 5


@pytest.mark.parametrize("style", ["ISO, MDY", "SQL, DMY", "German, DMY", "Postgres, MDY"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
async def test_for_a_day_whose_drop_was_permitted_starts_are_raised_whatever_the_session_s_settings(
    conn: Connection, queue_id: int, style: str, zone: str
) -> None:
    await require(conn, MESSAGE, actor=ACTOR, reason="audit")
    await let_be(conn, DayState.DROPPING)
    await conn.execute(f"SET datestyle = '{style}'")
    await conn.execute(f"SET timezone = '{zone}'")

    await raise_starts(conn, queue_id, dropping=DAY)

    assert await start_of(conn, queue_id) == 5


@pytest.mark.parametrize("state", [state for state in DayState if state is not DayState.DROPPING])
async def test_for_a_day_whose_drop_was_not_permitted_none_is_raised(
    conn: Connection, queue_id: int, state: DayState
) -> None:
    await require(conn, MESSAGE, actor=ACTOR, reason="audit")
    await let_be(conn, state)

    await assert_refused(conn, queue_id, dropping=DAY)


async def test_what_was_permitted_for_one_day_or_table_is_not_for_another(conn: Connection, queue_id: int) -> None:
    await require(conn, MESSAGE, actor=ACTOR, reason="audit")
    await let_be(conn, DayState.DROPPING)
    await let_be(conn, DayState.DROPPING, days_ago(9), DEAD_LETTER)

    await assert_refused(conn, queue_id, dropping=days_ago(7))
    await assert_refused(conn, queue_id, dropping=days_ago(9))


async def test_what_is_said_ends_with_the_transaction(conn: Connection, queue_id: int) -> None:
    await require(conn, MESSAGE, actor=ACTOR, reason="audit")
    await let_be(conn, DayState.DROPPING)
    async with conn.transaction():
        await say_dropping(conn, DAY)

    await assert_refused(conn, queue_id)


async def test_sealing_a_queue_raises_nothing_and_is_let_through(conn: Connection, queue_id: int) -> None:
    await require(conn, MESSAGE, actor=ACTOR, reason="audit")

    await conn.execute("UPDATE queue SET sealed = true, start_offset = start_offset")

    assert await start_of(conn, queue_id) == 0
