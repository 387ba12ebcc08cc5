"""Closing a day: whoever began before midnight is waited for, and all that there is of the day is noted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from msgbroker.contract.errors import DayStillOpenError, ThingNotFoundError
from msgdb.archive.claims import fail, renew
from msgdb.archive.closing import close_day
from msgdb.archive.records import ArchiveRange, ArchiveRun, ClosedDay
from msgdb.archive.sizes import measure_ranges
from msgdb.locks import QUEUE_LOCK_CLASS, queue_lock_key
from msgdb.log.partitions import day_bounds
from msgdb.log.queues import ensure_queues
from msgdb.names import DEAD_LETTER, MESSAGE
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from tests.support.archive_runs import archive_day, bury, claim_day, days_ago, mark, put_at, put_on
from tests.support.eventually import eventually
from tests.support.replicated_postgres import ReplicatedPostgres
from tests.support.rows import make_queue
from tests.support.standby import committing

DAY = days_ago(1)
FIRST, END = day_bounds(DAY)
LAST_MOMENT = END - timedelta(microseconds=1)
PARTITION = f"message_p{DAY:%Y%m%d}"
ZONES = ["America/New_York", "Pacific/Kiritimati"]


@pytest.fixture
async def other(store: MessageStore) -> AsyncIterator[Connection]:
    async with store.connection() as other:
        yield other


@asynccontextmanager
async def appending(conn: Connection, queue_id: int) -> AsyncIterator[None]:
    """Hold a queue's append lock as an append in flight does."""
    async with conn.transaction():
        await conn.execute("SELECT pg_advisory_xact_lock(%s, %s)", (QUEUE_LOCK_CLASS, queue_lock_key(queue_id)))
        yield


async def close(conn: Connection, run: ArchiveRun) -> ClosedDay:
    return await close_day(conn, run, wait_seconds=0.1)


def ends(closed: ClosedDay) -> list[tuple[int, int, int]]:
    return [(r.queue_id, r.first_offset, r.last_offset) for r in closed.ranges]


# --- appends in flight ------------------------------------------------------------------------------------------------


async def test_an_append_in_flight_keeps_the_day_open_and_is_named(conn: Connection, other: Connection) -> None:
    queue_id = await make_queue(conn)
    await put_on(conn, queue_id, range(3), DAY)
    run = await claim_day(conn, DAY)

    async with appending(other, queue_id):
        await put_at(other, queue_id, range(3, 4), LAST_MOMENT)
        with pytest.raises(DayStillOpenError) as caught:
            await close(conn, run)

    assert f"queue {queue_id} (TP_TRADE, generation 1, queue 0)" in caught.value.detail
    assert f"msgcenter (process {other.info.backend_pid}" in caught.value.detail
    assert ends(await close(conn, run)) == [(queue_id, 0, 3)], "what it has stored belongs to the day"


async def test_whoever_does_not_wait_at_all_is_told_at_once(conn: Connection, other: Connection) -> None:
    await put_on(conn, 1, range(3), DAY)
    run = await claim_day(conn, DAY)

    async with appending(other, 1), asyncio.timeout(5):
        with pytest.raises(DayStillOpenError):
            await close_day(conn, run, wait_seconds=0)


async def test_an_append_in_flight_to_a_queue_without_messages_keeps_the_day_open(
    conn: Connection, other: Connection
) -> None:
    await put_on(conn, 77, range(3), DAY)
    queue_id = await make_queue(conn, topic_id=5)
    run = await claim_day(conn, DAY)

    async with appending(other, queue_id):
        await put_at(other, queue_id, range(1), LAST_MOMENT)
        with pytest.raises(DayStillOpenError, match=rf"queue {queue_id} \(topic 5, generation 1, queue 0\)"):
            await close(conn, run)

    assert ends(await close(conn, run)) == [(queue_id, 0, 0), (77, 0, 2)]


async def test_an_append_in_flight_to_a_queue_whose_row_is_gone_keeps_the_day_open(
    conn: Connection, other: Connection
) -> None:
    await put_on(conn, 77, range(3), DAY)
    run = await claim_day(conn, DAY)

    async with appending(other, 77):
        with pytest.raises(DayStillOpenError, match="queue 77 of TP_TRADE"):
            await close(conn, run)


async def test_an_append_in_flight_is_named_where_the_session_is_more_impatient(
    conn: Connection, other: Connection
) -> None:
    await put_on(conn, 77, range(3), DAY)
    run = await claim_day(conn, DAY)
    await conn.execute("SET statement_timeout = '300ms'")

    async with appending(other, 77):
        with pytest.raises(DayStillOpenError, match="queue 77"):
            await close_day(conn, run, wait_seconds=30)


async def test_a_day_that_was_still_open_has_nothing_noted(conn: Connection, other: Connection) -> None:
    await put_on(conn, 77, range(3), DAY)
    run = await claim_day(conn, DAY)

    async with appending(other, 77):
        with pytest.raises(DayStillOpenError):
            await close(conn, run)

    assert await (await conn.execute("SELECT 1 FROM archive_range")).fetchall() == []
    assert await (await conn.execute("SELECT closed_at FROM archive_run")).fetchone() == (None,)


async def test_while_one_queue_is_waited_for_the_others_are_appended_to(
    store: MessageStore, conn: Connection, other: Connection
) -> None:
    for queue_id in (75, 76, 77, 78):
        await put_on(conn, queue_id, range(3), DAY)
    run = await claim_day(conn, DAY)

    async with appending(other, 76):
        closing = asyncio.create_task(close_day(conn, run, wait_seconds=30))
        async with store.connection() as third:
            await eventually(lambda: is_blocked(third, conn), what="the day waits for its queue")
            for queue_id in (75, 77, 78):
                key = queue_lock_key(queue_id)
                locked = await third.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", (QUEUE_LOCK_CLASS, key))
                assert await locked.fetchone() == (True,)

    assert len((await closing).ranges) == 4


async def is_blocked(conn: Connection, waiting: Connection) -> bool:
    blocking = await conn.execute("SELECT pg_blocking_pids(%s)", (waiting.info.backend_pid,))
    return await blocking.fetchone() != ([],)


async def test_a_commit_across_midnight_that_waits_for_its_standby_keeps_the_day_open(
    synchronous: ReplicatedPostgres,
) -> None:
    async with (
        MessageStore.open(synchronous.primary_url) as store,
        MessageStore.open(synchronous.primary_url, application_name="broker-1") as broker,
        store.connection() as conn,
        broker.connection() as appender,
    ):
        queue_id = await make_queue(conn)
        await put_on(conn, queue_id, range(1), DAY)
        synchronous.take_standby_away()
        try:
            append = asyncio.create_task(store_across_midnight(appender, queue_id))
            pid = await committing(synchronous)
            run = await claim_day(conn, DAY)
            with pytest.raises(DayStillOpenError) as caught:
                await close(conn, run)
        finally:
            synchronous.bring_standby_back()
        await append
        closed = await close(conn, run)

    assert f"queue {queue_id} (TP_TRADE" in caught.value.detail
    assert f"broker-1 (process {pid}" in caught.value.detail
    assert "waits for a standby" in caught.value.detail
    assert ends(closed) == [(queue_id, 0, 1)]


async def test_a_day_is_archived_while_the_standby_is_away(synchronous: ReplicatedPostgres) -> None:
    async with MessageStore.open(synchronous.primary_url) as store, store.connection() as conn:
        await put_on(conn, 7, range(1), DAY)
        synchronous.take_standby_away()
        try:
            async with asyncio.timeout(10):
                failed = await claim_day(conn, DAY)
                await fail(conn, failed, "disk full")
                run = await claim_day(conn, DAY)
                await renew(conn, run, 60)
                await mark(conn, run, await close(conn, run))
        finally:
            synchronous.bring_standby_back()


async def store_across_midnight(conn: Connection, queue_id: int) -> None:
    async with appending(conn, queue_id):
        await put_at(conn, queue_id, range(1, 2), LAST_MOMENT)


# --- what is noted ----------------------------------------------------------------------------------------------------


async def test_the_ends_of_each_queue_that_has_messages_of_the_day_are_noted(conn: Connection) -> None:
    (first, second, third) = [queue.queue_id for queue in await ensure_queues(conn, 1, 1, 3)]
    await put_on(conn, first, range(5), days_ago(2))
    await put_on(conn, first, range(5, 8), DAY)
    await put_on(conn, first, range(8, 9), days_ago(0))
    await put_at(conn, second, range(1), FIRST)
    await put_at(conn, second, range(1, 2), LAST_MOMENT)
    await put_at(conn, second, range(2, 3), END)
    await put_on(conn, third, range(2), days_ago(2))
    await put_on(conn, 1 << 40, range(4, 5), DAY)
    run = await claim_day(conn, DAY)

    closed = await close(conn, run)

    assert ends(closed) == [(first, 5, 7), (second, 0, 1), (1 << 40, 4, 4)]
    for one in closed.ranges:
        named = (one.queue_id, one.last_offset)
        query = "SELECT message_id FROM message WHERE queue_id = %s AND queue_offset = %s"
        assert await (await conn.execute(query, named)).fetchone() == (one.last_message_id,)
    assert closed.partition == PARTITION


async def test_what_is_noted_is_what_is_returned(conn: Connection) -> None:
    await put_on(conn, 7, range(2), DAY)
    run = await claim_day(conn, DAY)

    closed = await close(conn, run)

    columns = "queue_id, first_offset, last_offset, last_message_id"
    ranges = await (await conn.execute(f"SELECT {columns} FROM archive_range")).fetchall()
    assert tuple(map(ArchiveRange._make, ranges)) == closed.ranges
    noted = await (await conn.execute("SELECT timeline, closed_at, closed_lsn FROM archive_run")).fetchone()
    assert noted == (closed.timeline, closed.closed_at, closed.closed_lsn)
    timeline = await (await conn.execute("SELECT timeline FROM log_history ORDER BY ordinal DESC LIMIT 1")).fetchone()
    assert timeline is not None
    assert closed.timeline.rpartition("/")[2] == "00000001"


async def test_many_queues_are_waited_for_and_noted(conn: Connection, other: Connection) -> None:
    await put_on(conn, 1, range(2), DAY)
    await conn.execute(
        f"INSERT INTO {PARTITION} SELECT queue_id + n, queue_offset, stored_at, gen_random_uuid(), namespace, topic,"
        " event_code, key, ordering_key, headers, body, born_at, born_host, publisher_group, stress, target_group,"
        f" redrives FROM {PARTITION}, generate_series(1, 699) n"
    )
    run = await claim_day(conn, DAY)

    for queue_id in (1, 350, 700):
        async with appending(other, queue_id):
            with pytest.raises(DayStillOpenError, match=f"queue {queue_id} of TP_TRADE"):
                await close(conn, run)
    assert ends(await close(conn, run)) == [(queue_id, 0, 1) for queue_id in range(1, 701)]


async def test_a_day_without_a_message_has_no_range(conn: Connection) -> None:
    await put_on(conn, 7, range(2), days_ago(0))
    await put_on(conn, 7, range(0), DAY)
    run = await claim_day(conn, DAY)

    assert (await close(conn, run)).ranges == ()


async def test_a_detached_day_is_closed_by_its_own_name(conn: Connection) -> None:
    await put_on(conn, 7, range(2), DAY)
    await conn.execute(f"ALTER TABLE message DETACH PARTITION {PARTITION}")
    run = await claim_day(conn, DAY)

    closed = await close(conn, run)

    assert (ends(closed), closed.partition) == ([(7, 0, 1)], PARTITION)


async def test_a_day_whose_detach_was_interrupted_is_closed_by_its_own_name(
    conn: Connection, other: Connection
) -> None:
    await put_on(conn, 7, range(2), DAY)
    async with other.transaction():
        await other.execute("SELECT 1 FROM message LIMIT 1")
        detaching = asyncio.create_task(conn.execute(f"ALTER TABLE message DETACH PARTITION {PARTITION} CONCURRENTLY"))
        await eventually(lambda: is_blocked(other, conn), what="the detach waits for a reader")
        detaching.cancel()
        await asyncio.wait([detaching])
    assert await (await conn.execute("SELECT 1 FROM message")).fetchone() is None, "its parent shows it no more"
    run = await claim_day(conn, DAY)

    assert ends(await close(conn, run)) == [(7, 0, 1)]


async def test_a_day_that_went_since_it_was_claimed_cannot_be_closed(conn: Connection) -> None:
    await put_on(conn, 7, range(2), DAY)
    run = await claim_day(conn, DAY)
    await conn.execute(f"DROP TABLE {PARTITION}")

    with pytest.raises(ThingNotFoundError):
        await close(conn, run)


async def test_a_day_that_goes_while_a_run_looks_at_it_is_not_found(conn: Connection, other: Connection) -> None:
    await put_on(conn, 1, range(3), DAY)
    await archive_day(conn, DAY)
    run = await claim_day(conn, DAY, again=True)
    closed = await close(conn, run)
    await fail(conn, run, "to be claimed again")
    steps: list[Callable[[], Coroutine[Any, Any, object]]] = [
        lambda: claim_day(conn, DAY, again=True),
        lambda: close(conn, run),
        lambda: measure_ranges(conn, MESSAGE, PARTITION, closed.ranges),
    ]

    for step in steps:
        async with other.transaction():
            await other.execute(f"ALTER TABLE {PARTITION} RENAME TO gone".encode())
            looking = asyncio.create_task(step())
            await eventually(lambda: is_blocked(other, conn), what="it waits for the day that goes")
        with pytest.raises(ThingNotFoundError):
            await looking
        await other.execute(f"ALTER TABLE gone RENAME TO {PARTITION}".encode())


async def test_closing_again_notes_what_there_is_then(conn: Connection) -> None:
    await put_on(conn, 7, range(2), DAY)
    await put_on(conn, 8, range(2), DAY)
    run = await claim_day(conn, DAY)
    await close(conn, run)
    await put_on(conn, 7, range(2, 3), DAY)
    await conn.execute("DELETE FROM message WHERE queue_id = 8")

    closed = await close(conn, run)

    assert ends(closed) == [(7, 0, 2)]
    assert await (await conn.execute("SELECT count(*) FROM archive_range")).fetchone() == (1,)


# --- dead letters -----------------------------------------------------------------------------------------------------


async def test_whoever_writes_dead_letters_keeps_their_day_open_and_is_named(
    conn: Connection, other: Connection
) -> None:
    await bury(conn, FIRST)
    run = await claim_day(conn, DAY, DEAD_LETTER)

    async with other.transaction():
        ((last, message_id),) = await bury(other, LAST_MOMENT)
        with pytest.raises(DayStillOpenError) as caught:
            await close(conn, run)

    assert f"msgcenter (process {other.info.backend_pid}" in caught.value.detail
    (noted,) = (await close(conn, run)).ranges
    assert (noted.last_offset, noted.last_message_id) == (last, message_id)


async def test_whoever_comes_to_write_dead_letters_later_is_not_waited_for_and_does_not_wait(
    store: MessageStore, conn: Connection, other: Connection
) -> None:
    await bury(conn, FIRST)
    run = await claim_day(conn, DAY, DEAD_LETTER)
    async with store.connection() as third, third.transaction():
        async with other.transaction():
            await bury(other, LAST_MOMENT)
            closing = asyncio.create_task(close_day(conn, run, wait_seconds=30))
            await eventually(lambda: has_looked(store, conn), what="a look at who writes")
            async with asyncio.timeout(5):
                await bury(third, datetime.now(UTC))

        (noted,) = (await closing).ranges

    assert noted.last_offset - noted.first_offset == 1


async def has_looked(store: MessageStore, closing: Connection) -> bool:
    async with store.connection() as conn:
        looked = "SELECT query LIKE '%%RowExclusiveLock%%' FROM pg_stat_activity WHERE pid = %s"
        return await (await conn.execute(looked, (closing.info.backend_pid,))).fetchone() == (True,)


async def test_a_vacuum_of_dead_letters_keeps_no_day_open(conn: Connection, other: Connection) -> None:
    await bury(conn, FIRST)
    run = await claim_day(conn, DAY, DEAD_LETTER)

    async with other.transaction():
        await other.execute("LOCK TABLE dead_letter IN SHARE UPDATE EXCLUSIVE MODE")
        assert len((await close(conn, run)).ranges) == 1


@pytest.mark.parametrize("zone", ["UTC", *ZONES])
async def test_dead_letters_of_the_day_are_one_range_of_ids_whatever_the_session_s_time_zone(
    conn: Connection, zone: str
) -> None:
    await conn.execute(f"SET timezone = '{zone}'")
    moments = [FIRST - timedelta(microseconds=1), FIRST, FIRST + timedelta(hours=9), LAST_MOMENT, END]
    buried = await bury(conn, *moments)
    run = await claim_day(conn, DAY, DEAD_LETTER)

    closed = await close(conn, run)

    (first, _), (last, message_id) = buried[1], buried[3]
    assert closed.ranges == (ArchiveRange(0, first, last, message_id),)
    assert closed.partition == DEAD_LETTER


async def test_a_day_without_a_dead_letter_has_no_range(conn: Connection) -> None:
    await bury(conn, FIRST - timedelta(seconds=1), END)
    run = await claim_day(conn, DAY, DEAD_LETTER)

    assert (await close(conn, run)).ranges == ()


# --- days in UTC ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", ZONES)
async def test_a_day_is_that_of_utc_whatever_the_session_says(conn: Connection, zone: str) -> None:
    await conn.execute(f"SET timezone = '{zone}'")
    today = (await (await conn.execute("SELECT (now() AT TIME ZONE 'UTC')::date")).fetchall())[0][0]
    await put_at(conn, 7, range(1), LAST_MOMENT)
    await put_at(conn, 7, range(1, 2), END)

    with pytest.raises(DayStillOpenError):
        await claim_day(conn, today)
    run = await archive_day(conn, today - timedelta(days=1))

    ranges = await conn.execute("SELECT first_offset, last_offset FROM archive_range WHERE run_id = %s", (run.run_id,))
    assert await ranges.fetchall() == [(0, 0)]


@pytest.mark.parametrize("change", [datetime(2024, 3, 10, tzinfo=UTC), datetime(2024, 11, 3, tzinfo=UTC)])
async def test_a_day_on_which_summer_time_changes_has_24_hours(conn: Connection, change: datetime) -> None:
    await conn.execute("SET timezone = 'America/New_York'")
    end = change + timedelta(days=1)
    moment = timedelta(microseconds=1)
    await put_at(conn, 7, range(1), change)
    await put_at(conn, 7, range(1, 2), end - moment)
    await put_at(conn, 7, range(2, 3), end)
    buried = await bury(conn, change - moment, change, end - moment, end)

    messages = await close(conn, await claim_day(conn, change.date()))
    letters = await close(conn, await claim_day(conn, change.date(), DEAD_LETTER))

    assert ends(messages) == [(7, 0, 1)]
    assert ends(letters) == [(0, buried[1][0], buried[2][0])]
