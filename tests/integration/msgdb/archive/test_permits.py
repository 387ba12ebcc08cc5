"""A day may be dropped where nobody requires its archive, where somebody waived it, or where the archive has it all."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import psycopg
import pytest

from msgbroker.contract.errors import RunLostError
from msgdb.archive.claims import renew
from msgdb.archive.permits import NOT_ARCHIVED, Granted, Waiting, let_go, permit
from msgdb.archive.records import DayState, RunState
from msgdb.archive.stored_days import StoredDay, list_stored_days
from msgdb.day_tables import DAY_TABLES
from msgdb.log.partitions import today
from msgdb.log.queues import ensure_queues
from msgdb.names import MESSAGE, PUBLISHER_FRAME
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from tests.support.archive_rows import archive, put_day, put_run, require_archive, state_of
from tests.support.archive_runs import claim_day, let_lapse
from tests.support.rows import make_queue, put_messages
from tests.support.waiting import until_someone_waits_for_a_lock


async def old_day(conn: Connection, table: str = MESSAGE) -> StoredDay:
    """Return the oldest day, which has messages of two queues."""
    for queue in await ensure_queues(conn, 1, 1, 2):
        await put_messages(conn, queue.queue_id, range(5), days_ago=8)
    return (await list_stored_days(conn, DAY_TABLES[table], await today(conn)))[0]


async def ask(conn: Connection, stored: StoredDay) -> Granted | Waiting:
    async with conn.transaction():
        return await permit(conn, stored)


async def test_nobody_asks_for_an_archive_that_is_not_required_and_nothing_is_noted(conn: Connection) -> None:
    stored = await old_day(conn)

    assert await ask(conn, stored) == Granted()
    assert await state_of(conn, MESSAGE, stored.day) == (None, None)
    await conn.execute(f"DROP TABLE {stored.name}".encode())


async def test_frames_are_never_archived_and_go(conn: Connection) -> None:
    await require_archive(conn, MESSAGE)
    stored = await old_day(conn, PUBLISHER_FRAME)

    assert await ask(conn, stored) == Granted()
    await let_go(conn, stored)
    assert await state_of(conn, PUBLISHER_FRAME, stored.day) == (None, None)


async def test_a_day_from_before_the_archive_is_required_goes_and_lets_the_starts_of_its_queues_be_raised(
    conn: Connection,
) -> None:
    stored = await old_day(conn)
    await require_archive(conn, MESSAGE, stored.day + timedelta(days=1))

    assert await ask(conn, stored) == Granted()
    assert await state_of(conn, MESSAGE, stored.day) == ("DROPPING", None)


async def test_a_day_that_nobody_has_archived_waits(conn: Connection) -> None:
    stored = await old_day(conn)
    await require_archive(conn, MESSAGE, stored.day)

    assert await ask(conn, stored) == Waiting(NOT_ARCHIVED)
    assert await state_of(conn, MESSAGE, stored.day) == ("PENDING", NOT_ARCHIVED)


async def test_a_day_that_is_archived_as_it_is_may_go(conn: Connection) -> None:
    stored = await old_day(conn)
    await require_archive(conn, MESSAGE)
    await archive(conn, stored)

    for _ in range(2):
        assert await ask(conn, stored) == Granted()
        assert await state_of(conn, MESSAGE, stored.day) == ("DROPPING", None)
    await let_go(conn, stored)
    assert await state_of(conn, MESSAGE, stored.day) == ("DROPPED", None)


async def test_a_day_without_a_message_may_go_once_that_is_archived(conn: Connection) -> None:
    stored = await old_day(conn)
    await conn.execute(f"TRUNCATE {stored.name}".encode())
    await require_archive(conn, MESSAGE)
    assert await ask(conn, stored) == Waiting(NOT_ARCHIVED)
    await archive(conn, stored)

    assert await ask(conn, stored) == Granted()


@pytest.mark.parametrize(
    "change, said",
    [
        ("UPDATE {day} SET queue_offset = 5 WHERE queue_offset = 4", "has 0 to 5, and 0 to 4 was archived"),
        ("DELETE FROM {day} WHERE queue_offset = 0", "has 1 to 4, and 0 to 4 was archived"),
        ("UPDATE {day} SET queue_id = queue_id + 100", "has nothing, and 0 to 4 was archived"),
        ("DELETE FROM {day}", "has nothing, and 0 to 4 was archived"),
        # What a promotion leaves that lost the log's end, and gave its offsets to other messages.
        ("UPDATE {day} SET message_id = gen_random_uuid() WHERE queue_offset = 4", "another message at its end"),
    ],
)
async def test_a_day_that_is_not_what_was_archived_waits_until_it_is_archived_again(
    conn: Connection, change: str, said: str
) -> None:
    stored = await old_day(conn)
    await require_archive(conn, MESSAGE)
    await archive(conn, stored)
    await conn.execute(change.format(day=stored.name).encode())

    for _ in range(2):
        refused = await ask(conn, stored)
        assert isinstance(refused, Waiting)
        assert said in refused.reason
        assert await state_of(conn, MESSAGE, stored.day) == ("PENDING", refused.reason)
    await archive(conn, stored)
    assert await ask(conn, stored) == Granted()


async def test_of_many_queues_that_differ_a_few_are_named(conn: Connection) -> None:
    stored = await old_day(conn)
    await require_archive(conn, MESSAGE)
    await archive(conn, stored)
    await conn.execute(
        f"INSERT INTO {stored.name} SELECT (jsonb_populate_record(m, jsonb_build_object('queue_id', q))).*"
        f" FROM {stored.name} m, generate_series(1000, 1400) q WHERE m.queue_offset = 0 AND m.queue_id = 1".encode()
    )

    refused = await ask(conn, stored)

    assert isinstance(refused, Waiting)
    assert refused.reason.endswith("; and other queues")
    assert len(refused.reason) < 300


async def test_a_run_that_is_at_it_is_waited_for_and_one_whose_lease_has_passed_is_not(conn: Connection) -> None:
    stored = await old_day(conn)
    await require_archive(conn, MESSAGE)
    await archive(conn, stored)
    await put_run(conn, MESSAGE, stored.day, RunState.RUNNING)
    live = await put_run(conn, MESSAGE, stored.day, RunState.RUNNING, lease_seconds=60)

    refused = await ask(conn, stored)

    assert isinstance(refused, Waiting)
    assert "etl-1" in refused.reason
    assert await state_of(conn, MESSAGE, stored.day) == ("ARCHIVED", None)
    await conn.execute("UPDATE archive_run SET lease_until = clock_timestamp() WHERE run_id = %s", (live,))
    assert await ask(conn, stored) == Granted()


async def test_a_lease_that_had_passed_when_the_drop_was_permitted_never_stands_again(conn: Connection) -> None:
    stored = await old_day(conn)
    await require_archive(conn, MESSAGE)
    await archive(conn, stored)
    run = await claim_day(conn, stored.day, again=True)
    await let_lapse(conn, run)
    assert await ask(conn, stored) == Granted()
    # The clock is set back.
    await conn.execute("UPDATE archive_run SET lease_until = clock_timestamp() + interval '1 minute'")

    with pytest.raises(RunLostError):
        await renew(conn, run, 60)


async def test_a_lease_from_before_the_clock_was_set_back_keeps_no_day(conn: Connection) -> None:
    stored = await old_day(conn)
    await require_archive(conn, MESSAGE)
    await archive(conn, stored)
    await put_run(conn, MESSAGE, stored.day, RunState.RUNNING, lease_seconds=86_400)

    assert await ask(conn, stored) == Granted()


async def test_a_day_that_was_waived_may_go_whatever_comes_to_it(conn: Connection) -> None:
    stored = await old_day(conn)
    await require_archive(conn, MESSAGE)
    await put_day(conn, MESSAGE, stored.day, DayState.WAIVED, reason="load test")

    assert await ask(conn, stored) == Granted()
    await put_messages(conn, await make_queue(conn, topic_id=2), range(2), days_ago=8)
    assert await ask(conn, stored) == Granted()
    await let_go(conn, stored)
    assert await state_of(conn, MESSAGE, stored.day) == ("DROPPED", "load test")


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.FAILED, RunState.LOST])
async def test_a_run_that_was_not_verified_is_no_archive(conn: Connection, state: RunState) -> None:
    stored = await old_day(conn)
    await require_archive(conn, MESSAGE)
    run_id = await archive(conn, stored)
    await conn.execute("UPDATE archive_run SET state = %s WHERE run_id = %s", (state, run_id))

    assert isinstance(await ask(conn, stored), Waiting)
    assert (await state_of(conn, MESSAGE, stored.day))[0] == "PENDING"


async def test_a_day_that_is_there_again_stays_dropped_for_a_supplement_and_goes_where_it_is_empty(
    conn: Connection,
) -> None:
    stored = await old_day(conn)
    await require_archive(conn, MESSAGE)
    await put_day(conn, MESSAGE, stored.day, DayState.DROPPED)

    assert isinstance(await ask(conn, stored), Waiting)
    assert await state_of(conn, MESSAGE, stored.day) == ("DROPPED", None)
    await conn.execute(f"TRUNCATE {stored.name}".encode())
    assert await ask(conn, stored) == Granted()


async def test_while_the_archive_is_required_nobody_drops_a_day_that_was_asked_for_without_letting_it_go(
    conn: Connection,
) -> None:
    stored = await old_day(conn)
    await require_archive(conn, MESSAGE)
    for _ in range(2):
        await ask(conn, stored)

    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        await conn.execute(f"DROP TABLE {stored.name}".encode())
    # Columns come and go under it.
    await conn.execute("ALTER TABLE message ALTER COLUMN born_host TYPE varchar(100)")
    async with conn.transaction():
        await let_go(conn, stored)
        await conn.execute(f"DROP TABLE {stored.name}".encode())


async def test_nobody_begins_to_require_the_archive_between_the_answer_and_the_drop(
    store: MessageStore, conn: Connection
) -> None:
    stored = await old_day(conn)
    async with store.connection() as other, store.connection() as watching:
        async with conn.transaction():
            assert await permit(conn, stored) == Granted()
            requiring = asyncio.create_task(require_archive(other, MESSAGE))
            await until_someone_waits_for_a_lock(watching)
        await requiring

    assert isinstance(await ask(conn, stored), Waiting)
