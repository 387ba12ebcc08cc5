"""Claims: one run at a time has a day, and one that has lost it changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import date, timedelta

import pytest

from msgbroker.contract.errors import (
    DayClaimedError,
    DayStateError,
    DayStillOpenError,
    InvalidSettingError,
    RunLostError,
    StoreUnavailableError,
    ThingNotFoundError,
)
from msgdb.acts import list_acts
from msgdb.archive import noting
from msgdb.archive.claims import claim, fail, mark_verified, renew, waive
from msgdb.archive.closing import close_day
from msgdb.archive.listing import find_day
from msgdb.archive.noting import LEASE_SECONDS_MAX
from msgdb.archive.records import ArchiveRun, ClosedDay, DayState, RunState
from msgdb.names import MESSAGE
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from tests.support.archive_runs import (
    ACTOR,
    archive_day,
    claim_day,
    days_ago,
    let_lapse,
    mark,
    new_run_id,
    put_on,
    verified_run,
)
from tests.support.eventually import eventually

DAY = days_ago(1)


async def day_row(conn: Connection, day: date = DAY) -> tuple[object, ...] | None:
    rows = await conn.execute("SELECT state, run_id, reason FROM archive_day WHERE day = %s", (day,))
    return await rows.fetchone()


async def run_states(conn: Connection) -> list[str]:
    return [row[0] for row in await (await conn.execute("SELECT state FROM archive_run ORDER BY run_id")).fetchall()]


async def set_state(conn: Connection, state: DayState, day: date = DAY) -> None:
    await conn.execute("UPDATE archive_day SET state = %s WHERE day = %s", (state, day))


async def renew_it(conn: Connection, run: ArchiveRun, closed: ClosedDay) -> None:
    await renew(conn, run, 60)


async def fail_it(conn: Connection, run: ArchiveRun, closed: ClosedDay) -> None:
    await fail(conn, run, "too late")


async def close_it(conn: Connection, run: ArchiveRun, closed: ClosedDay) -> None:
    await close_day(conn, run)


Step = Callable[[Connection, ArchiveRun, ClosedDay], Awaitable[object]]


@pytest.fixture(autouse=True)
async def stored(conn: Connection) -> None:
    """Store a few messages of yesterday."""
    await put_on(conn, 1, range(3), DAY)


@pytest.mark.parametrize("is_noted", [True, False])
async def test_of_two_that_claim_a_day_at_once_one_has_it_and_the_other_is_told_who(
    store: MessageStore, conn: Connection, is_noted: bool
) -> None:
    if is_noted:
        await conn.execute("INSERT INTO archive_day (table_name, day, state) VALUES ('message', %s, 'PENDING')", (DAY,))
    async with store.connection() as other:
        async with conn.transaction():
            await claim(conn, MESSAGE, DAY, run_id=new_run_id(), holder="spark-1", lease_seconds=60)
            second = asyncio.create_task(claim_day(other, DAY, holder="spark-2"))
            await eventually(lambda: is_waiting(store, other), what="the second waits for the first")
        with pytest.raises(DayClaimedError, match="spark-1") as caught:
            await second
    assert caught.value.holder == "spark-1"
    assert caught.value.retryable
    assert await run_states(conn) == [RunState.RUNNING]


async def test_a_claim_does_not_wait_for_ever_for_whoever_holds_the_day(
    store: MessageStore, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noting, "LOCK_SECONDS", 0.1)
    async with conn.transaction():
        await noting.lock_day(conn, MESSAGE, DAY)
        with pytest.raises(StoreUnavailableError):
            async with store.transaction() as other:
                await claim(other, MESSAGE, DAY, run_id=new_run_id(), holder="spark-2", lease_seconds=60)


async def test_whoever_freezes_with_a_day_in_hand_loses_it(
    store: MessageStore, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noting, "HELD_SECONDS_MAX", 0.1)
    async with store.dedicated_connection() as frozen:
        # Its transaction is left as it is.
        await frozen.execute("BEGIN")
        await claim(frozen, MESSAGE, DAY, run_id=new_run_id(), holder="spark-1", lease_seconds=60)

        run = await claim_day(conn, DAY, holder="spark-2")

    rows = await conn.execute("SELECT run_id, holder FROM archive_run")
    assert await rows.fetchall() == [(run.run_id, "spark-2")]


async def is_waiting(store: MessageStore, waiting: Connection) -> bool:
    async with store.connection() as conn:
        blocked = await conn.execute("SELECT pg_blocking_pids(%s)", (waiting.info.backend_pid,))
        return await blocked.fetchone() != ([],)


async def test_a_run_whose_lease_has_passed_is_lost_to_the_next(conn: Connection) -> None:
    first = await claim_day(conn, DAY)
    await let_lapse(conn, first)

    await claim_day(conn, DAY, holder="spark-2")

    assert await run_states(conn) == [RunState.LOST, RunState.RUNNING]


async def test_a_lease_that_was_never_given_is_none(conn: Connection) -> None:
    zombie = await claim_day(conn, DAY)
    closed = await close_day(conn, zombie)
    await conn.execute("UPDATE archive_run SET lease_until = clock_timestamp() + interval '1 year'")

    await claim_day(conn, DAY)

    for finish in (renew_it, close_it, mark):
        with pytest.raises(RunLostError):
            await finish(conn, zombie, closed)
    assert await run_states(conn) == [RunState.LOST, RunState.RUNNING]


@pytest.mark.parametrize("go_on", [renew_it, close_it, mark])
async def test_a_lease_from_before_the_clock_was_set_back_is_none_to_its_own_run_either(
    conn: Connection, go_on: Step
) -> None:
    # The broker takes it for passed, and may have permitted the drop.
    run = await claim_day(conn, DAY)
    closed = await close_day(conn, run)
    await conn.execute("UPDATE archive_run SET lease_until = clock_timestamp() + interval '2 hours'")

    with pytest.raises(RunLostError):
        await go_on(conn, run, closed)


@pytest.mark.parametrize("finish", [renew_it, fail_it, mark])
async def test_a_run_that_finishes_after_it_was_lost_changes_nothing(conn: Connection, finish: Step) -> None:
    zombie = await claim_day(conn, DAY)
    closed = await close_day(conn, zombie)
    await let_lapse(conn, zombie)
    other = await archive_day(conn, DAY)
    before = await everything(conn)

    with pytest.raises(RunLostError) as caught:
        await finish(conn, zombie, closed)

    assert caught.value.run_id == str(zombie.run_id)
    assert await everything(conn) == before
    assert await day_row(conn) == (DayState.ARCHIVED, other.run_id, None)


async def everything(conn: Connection) -> list[object]:
    return [
        await (await conn.execute(f"SELECT * FROM {table} ORDER BY 1, 2")).fetchall()
        for table in ("archive_day", "archive_run", "archive_range")
    ]


@pytest.mark.parametrize("go_on", [renew_it, close_it, mark])
async def test_a_lease_that_has_passed_is_not_taken_up_again(conn: Connection, go_on: Step) -> None:
    # The broker may have permitted the drop meanwhile.
    run = await claim_day(conn, DAY)
    closed = await close_day(conn, run)
    await let_lapse(conn, run)

    with pytest.raises(RunLostError):
        await go_on(conn, run, closed)

    assert await day_row(conn) == (DayState.PENDING, None, None)


async def test_a_renewed_lease_runs_from_now_on(conn: Connection) -> None:
    run = await claim_day(conn, DAY)

    await renew(conn, run, 600)

    cursor = await conn.execute("SELECT lease_until - clock_timestamp() FROM archive_run")
    assert timedelta(seconds=590) < (await cursor.fetchall())[0][0] <= timedelta(seconds=600)


async def test_a_failed_run_gives_its_day_back_and_says_why(conn: Connection) -> None:
    run = await claim_day(conn, DAY)

    await fail(conn, run, "disk full\n\0 at the end")

    cursor = await conn.execute("SELECT failure, ended_at IS NOT NULL FROM archive_run")
    assert await cursor.fetchone() == ("disk full at the end", True)
    await claim_day(conn, DAY)
    assert await run_states(conn) == [RunState.FAILED, RunState.RUNNING]


async def test_of_a_run_that_failed_or_was_lost_no_ranges_are_kept(conn: Connection) -> None:
    lost = await claim_day(conn, DAY)
    await close_day(conn, lost)
    await let_lapse(conn, lost)
    failed = await claim_day(conn, DAY)
    await close_day(conn, failed)
    await fail(conn, failed, "disk full")
    verified = await archive_day(conn, DAY)

    rows = await conn.execute("SELECT DISTINCT run_id FROM archive_range")
    assert await rows.fetchall() == [(verified.run_id,)]


async def test_an_archived_day_is_archived_once_more_only_when_that_is_said(conn: Connection) -> None:
    first = await archive_day(conn, DAY)

    with pytest.raises(DayStateError) as caught:
        await claim_day(conn, DAY)
    assert caught.value.state == DayState.ARCHIVED
    again = await claim_day(conn, DAY, again=True)

    assert await day_row(conn) == (DayState.ARCHIVED, first.run_id, None), "until the new run is verified"
    assert again.base_run_id is None


async def test_an_archived_day_that_is_gone_is_not_archived_once_more(conn: Connection) -> None:
    await archive_day(conn, DAY)
    await drop_day(conn)

    with pytest.raises(DayStateError, match="nothing of it any more"):
        await claim_day(conn, DAY, again=True)


async def drop_day(conn: Connection) -> None:
    await conn.execute(f"DROP TABLE message_p{DAY:%Y%m%d}")


async def test_a_day_that_is_being_dropped_is_not_claimed(conn: Connection) -> None:
    await archive_day(conn, DAY)
    await set_state(conn, DayState.DROPPING)

    with pytest.raises(DayStateError) as caught:
        await claim_day(conn, DAY, again=True)
    assert caught.value.state == DayState.DROPPING


async def test_a_dropped_day_is_claimed_only_where_the_store_has_it_again_and_adds_to_what_was(
    conn: Connection,
) -> None:
    base = await archive_day(conn, DAY)
    await set_state(conn, DayState.DROPPED)
    await drop_day(conn)
    with pytest.raises(DayStateError) as caught:
        await claim_day(conn, DAY)
    assert caught.value.state == DayState.DROPPED

    await put_on(conn, 1, range(3, 5), DAY)
    supplement = await archive_day(conn, DAY)

    assert supplement.base_run_id == base.run_id
    assert await day_row(conn) == (DayState.ARCHIVED, supplement.run_id, None)


@pytest.mark.parametrize("state", [DayState.PENDING, DayState.ARCHIVED])
async def test_what_was_dropped_before_is_added_to_whatever_the_day_s_state_is_now(
    conn: Connection, state: DayState
) -> None:
    base = await archive_day(conn, DAY)
    await drop_day(conn)
    await put_on(conn, 1, range(3, 5), DAY)
    await set_state(conn, state)

    supplement = await archive_day(conn, DAY, again=True)
    # Something has come since: what the supplement read is there still, what its base read is not.
    await put_on(conn, 1, range(5, 6), DAY)
    rerun = await archive_day(conn, DAY, again=True)

    assert supplement.base_run_id == base.run_id
    assert rerun.base_run_id == base.run_id


async def test_a_pending_day_whose_rows_are_all_there_adds_to_nothing(conn: Connection) -> None:
    await archive_day(conn, DAY)
    await put_on(conn, 1, range(3, 5), DAY)
    await set_state(conn, DayState.PENDING)

    assert (await claim_day(conn, DAY)).base_run_id is None


@pytest.mark.parametrize("ahead", [0, 1, 2])
async def test_a_day_that_is_not_over_is_not_claimed(conn: Connection, ahead: int) -> None:
    with pytest.raises(DayStillOpenError):
        await claim_day(conn, days_ago(-ahead))


@pytest.mark.parametrize("table", ["publisher_frame", "queue", "no_such_table", "message; DROP TABLE message"])
async def test_a_table_that_is_not_archived_is_refused(conn: Connection, table: str) -> None:
    with pytest.raises(InvalidSettingError, match="message, dead_letter"):
        await claim_day(conn, DAY, table)


async def test_a_day_that_the_store_does_not_have_is_refused(conn: Connection) -> None:
    with pytest.raises(ThingNotFoundError):
        await claim_day(conn, days_ago(400))
    assert await day_row(conn, days_ago(400)) is None


@pytest.mark.parametrize("lease_seconds", [0.0, -1.0, LEASE_SECONDS_MAX + 1, float("nan")])
async def test_a_lease_has_bounds(conn: Connection, lease_seconds: float) -> None:
    with pytest.raises(InvalidSettingError):
        await claim(conn, MESSAGE, DAY, run_id=new_run_id(), holder="spark-1", lease_seconds=lease_seconds)


# --- mark -------------------------------------------------------------------------------------------------------------


async def test_a_mark_moves_the_day_s_pointer_and_keeps_what_was_read_back(conn: Connection) -> None:
    run = await claim_day(conn, DAY)
    verified = await mark(conn, run, await close_day(conn, run))

    assert await day_row(conn) == (DayState.ARCHIVED, run.run_id, None)
    columns = "state, manifest, row_count, file_count, file_bytes, ended_at IS NOT NULL"
    marked = await (await conn.execute(f"SELECT {columns} FROM archive_run")).fetchone()
    assert marked == (RunState.VERIFIED, verified.manifest, 3, 1, 1_000, True)
    ranges = await conn.execute("SELECT queue_id, row_count, digest FROM archive_range")
    assert await ranges.fetchall() == [(1, 3, "digest-1")]


async def test_a_mark_that_is_taken_back_leaves_the_day_as_it_was(conn: Connection) -> None:
    run = await claim_day(conn, DAY)
    closed = await close_day(conn, run)

    async with conn.transaction(force_rollback=True):
        await mark_verified(conn, run, verified_run(closed.ranges))
        assert await day_row(conn) == (DayState.ARCHIVED, run.run_id, None)

    assert await day_row(conn) == (DayState.PENDING, None, None)
    assert await run_states(conn) == [RunState.RUNNING]


async def test_a_day_that_was_not_closed_is_not_marked(conn: Connection) -> None:
    run = await claim_day(conn, DAY)

    with pytest.raises(RunLostError):
        async with conn.transaction():
            await mark_verified(conn, run, verified_run([]))

    assert await day_row(conn) == (DayState.PENDING, None, None)


async def test_a_run_that_has_not_verified_all_that_was_closed_is_not_marked(conn: Connection) -> None:
    await put_on(conn, 2, range(1), DAY)
    run = await claim_day(conn, DAY)
    closed = await close_day(conn, run)

    with pytest.raises(AssertionError):
        async with conn.transaction():
            await mark_verified(conn, run, verified_run(closed.ranges[:1]))

    assert await day_row(conn) == (DayState.PENDING, None, None)


@pytest.mark.parametrize("state", [DayState.DROPPING, DayState.DROPPED])
async def test_a_day_whose_drop_was_permitted_meanwhile_is_not_marked(conn: Connection, state: DayState) -> None:
    await archive_day(conn, DAY)
    run = await claim_day(conn, DAY, again=True)
    closed = await close_day(conn, run)
    await set_state(conn, state)

    with pytest.raises(RunLostError):
        await mark(conn, run, closed)

    assert await run_states(conn) == [RunState.VERIFIED, RunState.RUNNING]


# --- waive ------------------------------------------------------------------------------------------------------------


async def test_a_day_is_waived_with_the_act_that_says_who_and_why(conn: Connection) -> None:
    async with conn.transaction():
        await waive(conn, MESSAGE, DAY, actor=ACTOR, reason="nobody needs it")

    assert await day_row(conn) == (DayState.WAIVED, None, "nobody needs it")
    (act,) = await list_acts(conn)
    assert (act.actor, act.action, act.thing, act.reason) == (
        ACTOR,
        "archive.waive",
        f"message {DAY}",
        "nobody needs it",
    )


async def test_a_waiver_that_is_taken_back_leaves_neither_state_nor_act(conn: Connection) -> None:
    async with conn.transaction(force_rollback=True):
        await waive(conn, MESSAGE, DAY, actor=ACTOR, reason="nobody needs it")

    assert await day_row(conn) is None
    assert await list_acts(conn) == []


@pytest.mark.parametrize("state", [state for state in DayState if state is not DayState.PENDING])
async def test_only_a_pending_day_is_waived(conn: Connection, state: DayState) -> None:
    await archive_day(conn, DAY)
    await set_state(conn, state)

    with pytest.raises(DayStateError) as caught:
        await waive(conn, MESSAGE, DAY, actor=ACTOR, reason="nobody needs it")

    assert caught.value.state == state
    assert await list_acts(conn) == []


@pytest.mark.parametrize("said", [{"actor": ACTOR, "reason": " "}, {"actor": "", "reason": "why"}])
async def test_a_waiver_without_a_name_or_a_reason_is_refused(conn: Connection, said: dict[str, str]) -> None:
    with pytest.raises(InvalidSettingError):
        async with conn.transaction():
            await waive(conn, MESSAGE, DAY, **said)
    assert await day_row(conn) is None


@pytest.mark.parametrize("day, error", [(days_ago(0), DayStillOpenError), (days_ago(400), ThingNotFoundError)])
async def test_a_day_that_is_not_over_or_not_there_is_not_waived(
    conn: Connection, day: date, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await waive(conn, MESSAGE, day, actor=ACTOR, reason="why")


async def test_a_waived_day_may_be_archived_all_the_same(conn: Connection) -> None:
    async with conn.transaction():
        await waive(conn, MESSAGE, DAY, actor=ACTOR, reason="nobody needs it")

    run = await archive_day(conn, DAY)

    assert await day_row(conn) == (DayState.ARCHIVED, run.run_id, None)


# --- settings of others -----------------------------------------------------------------------------------------------


async def test_a_day_is_archived_whatever_the_database_s_defaults_are(database_url: str, conn: Connection) -> None:
    for setting in ("datestyle = 'SQL, DMY'", "timezone = 'America/New_York'", "intervalstyle = 'iso_8601'"):
        await conn.execute(f'ALTER DATABASE "{conn.info.dbname}" SET {setting}')

    async with MessageStore.open(database_url) as store, store.connection() as other:
        run = await archive_day(other, DAY)
        day = await find_day(other, MESSAGE, DAY)

    assert day is not None
    assert day.archived_by is not None
    assert (day.day, day.archived_by.run_id) == (DAY, run.run_id)
