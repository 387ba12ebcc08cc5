"""A day on its whole way: what a run has closed and marked is what the broker drops, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import pytest

from msgbroker.contract.errors import DayStateError, RunLostError
from msgdb.archive.claims import claim, mark_verified, renew, waive
from msgdb.archive.closing import close_day
from msgdb.archive.listing import find_day, find_oldest_waiting
from msgdb.archive.policy import require, stop_requiring
from msgdb.archive.records import ArchiveRun, DayState, DayStatus, VerifiedRange, VerifiedRun
from msgdb.days.maintenance import Maintenance, MaintenanceConfig
from msgdb.log.partitions import day_bounds
from msgdb.names import DEAD_LETTER, MESSAGE
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from tests.support.archive_runs import (
    ACTOR,
    archive_day,
    bury,
    claim_day,
    days_ago,
    let_lapse,
    mark,
    new_run_id,
    put_on,
)
from tests.support.rows import GROUP_NAMES, make_queue

DAY = days_ago(9)
PARTITION = f"message_p{DAY:%Y%m%d}"


@pytest.fixture
async def queue_id(conn: Connection) -> int:
    """Store some messages of a day that is older than messages are kept, and let its archive be required."""
    queue_id = await make_queue(conn)
    await put_on(conn, queue_id, range(5), DAY)
    await require(conn, MESSAGE, actor=ACTOR, reason="audit", from_day=date(2020, 1, 1))
    return queue_id


async def maintain(store: MessageStore) -> Sequence[str]:
    """Do a round of maintenance, and return what it has dropped."""
    report = await Maintenance(store, MaintenanceConfig(), group_names=lambda: GROUP_NAMES).maintain_once()
    assert report is not None
    return report.dropped


async def day_of(conn: Connection, table: str = MESSAGE) -> DayStatus:
    day = await find_day(conn, table, DAY)
    assert day is not None
    return day


async def test_a_day_that_waits_is_archived_and_goes(store: MessageStore, conn: Connection, queue_id: int) -> None:
    assert PARTITION not in await maintain(store)
    waiting = await find_oldest_waiting(conn)
    assert waiting is not None
    assert (waiting.table, waiting.day) == (MESSAGE, DAY)

    run = await archive_day(conn, DAY)

    assert PARTITION in await maintain(store)
    day = await day_of(conn)
    assert day.archived_by is not None
    assert (day.state, day.is_stored, day.archived_by.run_id) == (DayState.DROPPED, False, run.run_id)
    waiting = await find_oldest_waiting(conn)
    assert waiting is not None, "there is a partition of yesterday"
    assert waiting.day == days_ago(1)


async def test_a_day_stays_while_a_run_is_at_it(store: MessageStore, conn: Connection, queue_id: int) -> None:
    await archive_day(conn, DAY)
    run = await claim_day(conn, DAY, again=True)
    closed = await close_day(conn, run)

    assert PARTITION not in await maintain(store)

    await mark(conn, run, closed)
    assert PARTITION in await maintain(store)


async def test_a_run_whose_lease_passed_marks_nothing_once_the_day_goes(
    store: MessageStore, conn: Connection, queue_id: int
) -> None:
    first = await archive_day(conn, DAY)
    zombie = await claim_day(conn, DAY, again=True)
    closed = await close_day(conn, zombie)
    await let_lapse(conn, zombie)
    assert PARTITION in await maintain(store)

    with pytest.raises(RunLostError):
        await renew(conn, zombie, 60)
    with pytest.raises(RunLostError):
        await mark(conn, zombie, closed)

    day = await day_of(conn)
    assert day.archived_by is not None
    assert (day.state, day.archived_by.run_id) == (DayState.DROPPED, first.run_id)


async def test_what_reaches_an_archived_day_is_archived_before_the_day_goes(
    store: MessageStore, conn: Connection, queue_id: int
) -> None:
    await archive_day(conn, DAY)
    await put_on(conn, queue_id, range(5, 6), DAY)

    assert PARTITION not in await maintain(store)
    assert (await day_of(conn)).state is DayState.PENDING
    run = await claim_day(conn, DAY)
    closed = await close_day(conn, run)

    assert (run.base_run_id, closed.ranges[0].last_offset) == (None, 5)
    await mark(conn, run, closed)
    assert PARTITION in await maintain(store)


async def test_offsets_that_a_promotion_gave_out_again_are_archived_before_the_day_goes(
    store: MessageStore, conn: Connection, queue_id: int
) -> None:
    lost = await archive_day(conn, DAY)
    # The end that was archived was lost, and other messages have its offsets.
    await conn.execute("DELETE FROM message WHERE queue_offset >= 3")
    await put_on(conn, queue_id, range(3, 5), DAY)

    assert PARTITION not in await maintain(store)
    run = await archive_day(conn, DAY)

    assert run.run_id != lost.run_id
    assert PARTITION in await maintain(store)


async def test_a_day_that_comes_back_is_supplemented_as_often_as_it_does(
    store: MessageStore, conn: Connection, queue_id: int
) -> None:
    runs = [await archive_day(conn, DAY)]
    assert PARTITION in await maintain(store)
    for first in (5, 7):
        await put_on(conn, queue_id, range(first, first + 2), DAY)
        assert PARTITION not in await maintain(store), "what came back is not archived"
        waiting = await find_oldest_waiting(conn)
        assert waiting is not None
        assert waiting.day == DAY

        runs.append(await archive_day(conn, DAY))
        assert PARTITION in await maintain(store)

    assert [run.base_run_id for run in runs] == [None, runs[0].run_id, runs[1].run_id]


async def test_a_waived_day_goes_and_what_comes_back_is_archived_as_a_day_of_its_own(
    store: MessageStore, conn: Connection, queue_id: int
) -> None:
    assert PARTITION not in await maintain(store)
    async with conn.transaction():
        await waive(conn, MESSAGE, DAY, actor=ACTOR, reason="nobody needs it")
    assert PARTITION in await maintain(store)

    await put_on(conn, queue_id, range(5, 6), DAY)
    run = await archive_day(conn, DAY)

    assert run.base_run_id is None
    assert PARTITION in await maintain(store)


async def test_a_day_that_is_on_its_way_out_is_neither_claimed_nor_waived(
    store: MessageStore, conn: Connection, queue_id: int
) -> None:
    await archive_day(conn, DAY)
    async with store.connection() as reader, reader.transaction():
        # The detach waits for whoever reads.
        await reader.execute("SELECT 1 FROM message LIMIT 1")
        config = MaintenanceConfig(detach_timeout_seconds=0.2)
        await Maintenance(store, config, group_names=lambda: GROUP_NAMES).maintain_once()
        assert (await day_of(conn)).state is DayState.DROPPING

        with pytest.raises(DayStateError):
            await claim_day(conn, DAY, again=True)
        with pytest.raises(DayStateError):
            await waive(conn, MESSAGE, DAY, actor=ACTOR, reason="why")

    assert PARTITION in await maintain(store)


async def test_a_day_goes_as_before_once_its_archive_is_required_no_longer(
    store: MessageStore, conn: Connection, queue_id: int
) -> None:
    assert PARTITION not in await maintain(store)
    async with conn.transaction():
        await stop_requiring(conn, MESSAGE, actor=ACTOR, reason="no disk")

    assert PARTITION in await maintain(store)


async def test_dead_letters_that_were_archived_go_and_those_that_came_since_are_archived_first(
    store: MessageStore, conn: Connection
) -> None:
    old = days_ago(100)
    noon = day_bounds(old)[0] + timedelta(hours=12)
    await bury(conn, noon, datetime.now(UTC), noon)
    await require(conn, DEAD_LETTER, actor=ACTOR, reason="audit", from_day=date(2020, 1, 1))
    await maintain(store)
    assert await count_letters(conn) == 3
    await archive_letters(conn, old)
    await bury(conn, noon)

    await maintain(store)
    assert await count_letters(conn) == 4, "one is not archived"
    await archive_letters(conn, old)
    await maintain(store)

    assert await count_letters(conn) == 1
    day = await find_day(conn, DEAD_LETTER, old)
    assert day is not None
    assert day.state is DayState.DROPPED


async def count_letters(conn: Connection) -> int:
    rows = await (await conn.execute("SELECT count(*) FROM dead_letter")).fetchall()
    count: int = rows[0][0]
    return count


async def archive_letters(conn: Connection, day: date) -> ArchiveRun:
    """Archive a day of dead letters; their ids are not gapless, so they are counted."""
    run_id: UUID = new_run_id()
    async with conn.transaction():
        run = await claim(conn, DEAD_LETTER, day, run_id=run_id, holder="spark-1", lease_seconds=60)
    closed = await close_day(conn, run)
    first, end = day_bounds(day)
    found = await conn.execute("SELECT count(*) FROM dead_letter WHERE died_at >= %s AND died_at < %s", (first, end))
    (row,) = await found.fetchall()
    verified = tuple(VerifiedRange(each.queue_id, row[0], "digest") for each in closed.ranges)
    async with conn.transaction():
        await mark_verified(conn, run, VerifiedRun("manifest", row[0], 1, 1, verified))
    return run
