"""Of two who change what becomes of a day at the same time one comes second, and sees what the first one did."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import date
from typing import Any

import pytest

from msgbroker.contract.errors import DayStateError, RunLostError
from msgdb.archive.claims import claim, mark_verified, waive
from msgdb.archive.closing import close_day
from msgdb.archive.permits import Granted, Waiting, permit
from msgdb.archive.records import DayState
from msgdb.archive.stored_days import StoredDay, list_stored_days
from msgdb.day_tables import DAY_TABLES
from msgdb.log.partitions import today
from msgdb.names import MESSAGE
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from tests.support.archive_rows import require_archive, state_of
from tests.support.archive_runs import (
    ACTOR,
    archive_day,
    claim_day,
    days_ago,
    let_lapse,
    new_run_id,
    put_on,
    verified_run,
)
from tests.support.rows import make_queue
from tests.support.waiting import until_someone_waits_for_a_lock

DAY = days_ago(8)

Act = Callable[[Connection], Coroutine[Any, Any, object]]


@pytest.fixture
async def other(store: MessageStore) -> AsyncIterator[Connection]:
    async with store.connection() as other:
        yield other


@pytest.fixture
async def stored(conn: Connection) -> StoredDay:
    """Store some messages of a day that is to go, and let its archive be required."""
    await put_on(conn, await make_queue(conn), range(5), DAY)
    await require_archive(conn, MESSAGE, date(2020, 1, 1))
    return (await list_stored_days(conn, DAY_TABLES[MESSAGE], await today(conn)))[0]


async def one_after_the_other(store: MessageStore, conn: Connection, other: Connection, first: Act, second: Act) -> Any:
    """Let *second* begin while *first* has not committed, and return what it gives."""
    async with store.connection() as watching:
        async with conn.transaction():
            await first(conn)
            waiting = asyncio.create_task(_in_transaction(other, second))
            await until_someone_waits_for_a_lock(watching)
        return await waiting


async def _in_transaction(conn: Connection, act: Act) -> object:
    async with conn.transaction():
        return await act(conn)


async def claim_again(conn: Connection) -> object:
    return await claim(conn, MESSAGE, DAY, run_id=new_run_id(), holder="spark-2", lease_seconds=60, again=True)


async def waive_it(conn: Connection) -> None:
    await waive(conn, MESSAGE, DAY, actor=ACTOR, reason="a load test's")


async def test_a_drop_that_is_asked_for_while_a_run_claims_the_day_waits_for_the_run(
    store: MessageStore, conn: Connection, other: Connection, stored: StoredDay
) -> None:
    await archive_day(conn, DAY)

    answer = await one_after_the_other(store, conn, other, claim_again, lambda broker: permit(broker, stored))

    assert isinstance(answer, Waiting)
    assert await state_of(conn, MESSAGE, DAY) == ("ARCHIVED", None)


@pytest.mark.parametrize("late", [claim_again, waive_it])
async def test_a_day_whose_drop_is_being_permitted_is_neither_claimed_nor_waived(
    store: MessageStore, conn: Connection, other: Connection, stored: StoredDay, late: Act
) -> None:
    await archive_day(conn, DAY)

    with pytest.raises(DayStateError, match=DayState.DROPPING):
        await one_after_the_other(store, conn, other, lambda broker: permit(broker, stored), late)


async def test_a_run_that_marks_while_the_drop_is_being_permitted_has_lost_the_day(
    store: MessageStore, conn: Connection, other: Connection, stored: StoredDay
) -> None:
    await archive_day(conn, DAY)
    zombie = await claim_day(conn, DAY, again=True)
    closed = await close_day(conn, zombie)
    await let_lapse(conn, zombie)

    async def mark_as_if_renewed(job: Connection) -> None:
        # As where a clock was set back: its lease stands once more.
        await job.execute("UPDATE archive_run SET lease_until = clock_timestamp() + interval '1 minute'")
        await mark_verified(job, zombie, verified_run(closed.ranges))

    with pytest.raises(RunLostError):
        await one_after_the_other(store, conn, other, lambda broker: permit(broker, stored), mark_as_if_renewed)

    assert await state_of(conn, MESSAGE, DAY) == ("DROPPING", None)


@pytest.mark.parametrize("is_waived_first", [True, False])
async def test_a_drop_that_is_asked_for_while_the_day_is_waived_goes_by_what_was_said(
    store: MessageStore, conn: Connection, other: Connection, stored: StoredDay, is_waived_first: bool
) -> None:
    if is_waived_first:
        answer = await one_after_the_other(store, conn, other, waive_it, lambda broker: permit(broker, stored))
        assert answer == Granted()
    else:
        await one_after_the_other(store, conn, other, lambda broker: permit(broker, stored), waive_it)
        async with conn.transaction():
            assert await permit(conn, stored) == Granted()
    assert await state_of(conn, MESSAGE, DAY) == ("DROPPING", "a load test's")


async def test_a_run_that_marks_a_day_while_it_is_waived_has_archived_it(
    store: MessageStore, conn: Connection, other: Connection, stored: StoredDay
) -> None:
    run = await claim_day(conn, DAY)
    closed = await close_day(conn, run)

    async def mark(job: Connection) -> None:
        await mark_verified(job, run, verified_run(closed.ranges))

    await one_after_the_other(store, conn, other, waive_it, mark)

    assert await state_of(conn, MESSAGE, DAY) == ("ARCHIVED", None)
