"""With the archive required, a day goes once it is archived as it is, whoever does it, wherever it is interrupted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import date, timedelta
from typing import Any

import psycopg
import pytest

from msgdb.archive.permits import NOT_ARCHIVED
from msgdb.archive.records import DayState, RunState
from msgdb.archive.stored_days import StoredDay, list_stored_days
from msgdb.day_tables import DAY_TABLES
from msgdb.days import dropping
from msgdb.days.maintenance import Maintenance
from msgdb.days.maintenance import MaintenanceConfig as Config
from msgdb.days.rounds import MaintenanceReport
from msgdb.lanes.leases import claim, load_redeliveries
from msgdb.lanes.records import LaneCheckpoint, LaneKey, RedeliveryUpsert
from msgdb.log.partitions import DayPartition, detach_partition, list_partitions, lock_detached, today
from msgdb.log.reads import first_offsets, next_offsets
from msgdb.names import MESSAGE, PUBLISHER_FRAME, TRACE_EVENT
from msgdb.postgres.connections import Connection
from msgdb.reports.alarms import list_alarms
from msgdb.store import MessageStore
from tests.support.archive_rows import archive, put_day, put_run, require_archive, state_of, stop_requiring
from tests.support.earlier_maintenance import drop_as_before
from tests.support.rows import GROUP, GROUP_NAMES, OWNER, lanes_to_claim, make_queue, persist, put_messages


class KilledError(BaseException):
    """The broker ends here."""


async def maintain(store: MessageStore, **settings: Any) -> MaintenanceReport:
    keeper = Maintenance(store, Config(**settings), group_names=lambda: GROUP_NAMES)
    report = await keeper.maintain_once()
    assert report is not None
    return report


async def make_old_day(conn: Connection, days_ago: int = 8, first: int = 0, topic_id: int = 1) -> StoredDay:
    """Store ten messages of a day that is older than messages are kept, and return the day."""
    await put_messages(conn, await make_queue(conn, topic_id), range(first, first + 10), days_ago=days_ago)
    day = await today(conn) - timedelta(days=days_ago)
    return next(each for each in await stored_days(conn) if each.day == day)


async def stored_days(conn: Connection) -> list[StoredDay]:
    return await list_stored_days(conn, DAY_TABLES[MESSAGE], await today(conn))


async def is_there(conn: Connection, name: str) -> bool:
    row = await (await conn.execute("SELECT to_regclass(%s) IS NOT NULL", (name,))).fetchone()
    return row == (True,)


async def state(conn: Connection, day: date) -> str | None:
    return (await state_of(conn, MESSAGE, day))[0]


def frames_of(stored: StoredDay) -> str:
    return stored.name.replace(MESSAGE, PUBLISHER_FRAME)


def traces_of(stored: StoredDay) -> str:
    return stored.name.replace(MESSAGE, TRACE_EVENT)


async def make_lane(conn: Connection, stored: StoredDay) -> LaneKey:
    """Let a group be in the middle of the day, with a message that waits for another attempt."""
    queue_id = await make_queue(conn)
    (lane,) = await claim(conn, OWNER, lanes_to_claim([queue_id]), 60)
    row = await (await conn.execute(f"SELECT min(stored_at) FROM {stored.name}".encode())).fetchone()
    assert row is not None
    upserts = [RedeliveryUpsert(2, int(row[0].timestamp() * 1_000_000), 3, 60.0, None, "boom")]
    await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 4, [], upserts)], GROUP_NAMES)
    return lane.key


async def acked_offset(conn: Connection) -> int:
    row = await (await conn.execute("SELECT acked_offset FROM cursor WHERE group_id = %s", (GROUP,))).fetchone()
    assert row is not None
    return int(row[0])


async def test_a_day_that_is_not_archived_stays_with_all_that_points_into_it_and_other_tables_go_on(
    store: MessageStore, conn: Connection
) -> None:
    await require_archive(conn, MESSAGE)
    stored = await make_old_day(conn)
    key = await make_lane(conn, stored)

    for _ in range(2):
        report = await maintain(store)
        assert (report.waiting, report.failed) == ([stored.name], [])

    assert not await is_there(conn, frames_of(stored))
    assert await acked_offset(conn) == 4
    assert [row.queue_offset for row in (await load_redeliveries(conn, [key]))[key]] == [2]
    assert await first_offsets(conn, [key.queue_id]) == {key.queue_id: 0}
    (alarm,) = await list_alarms(conn)
    assert (alarm.kind, alarm.thing, alarm.broker) == ("DAY_NOT_ARCHIVED", stored.name, "")
    assert alarm.detail == f"8 days old, and kept until it is archived: {NOT_ARCHIVED}"


async def test_once_a_day_is_archived_it_goes_and_the_alarm_is_cleared(store: MessageStore, conn: Connection) -> None:
    await require_archive(conn, MESSAGE)
    stored = await make_old_day(conn)
    key = await make_lane(conn, stored)
    await maintain(store)
    await archive(conn, stored)

    report = await maintain(store)

    assert (report.dropped, report.waiting) == ([stored.name], [])
    assert await state(conn, stored.day) == "DROPPED"
    assert not await is_there(conn, stored.name)
    assert not await is_there(conn, f"{stored.name}_held")
    assert (await acked_offset(conn), await next_offsets(conn, [key.queue_id])) == (10, {key.queue_id: 10})
    assert await list_alarms(conn) == []
    assert (await maintain(store)).is_empty


async def test_the_later_days_of_the_log_wait_behind_one_that_is_not_archived(
    store: MessageStore, conn: Connection
) -> None:
    await require_archive(conn, MESSAGE)
    oldest = await make_old_day(conn, 9)
    key = await make_lane(conn, oldest)
    later = await make_old_day(conn, 8, first=10)
    await archive(conn, later)

    report = await maintain(store)

    assert report.waiting == [oldest.name]
    assert report.dropped == [frames_of(oldest), frames_of(later), traces_of(oldest), traces_of(later)]
    assert await is_there(conn, later.name)
    assert await first_offsets(conn, [key.queue_id]) == {key.queue_id: 0}
    await archive(conn, oldest)
    assert (await maintain(store)).dropped == [oldest.name, later.name]


async def test_a_day_whose_permit_fails_may_have_to_be_archived_and_the_log_waits(
    store: MessageStore, conn: Connection
) -> None:
    await require_archive(conn, MESSAGE)
    oldest = await make_old_day(conn, 9)
    later = await make_old_day(conn, 8, first=10)
    for stored in (oldest, later):
        await archive(conn, stored)
    async with store.transaction() as claiming:
        await claiming.execute("SELECT * FROM archive_day WHERE day = %s FOR UPDATE", (oldest.day,))

        report = await maintain(store)

    assert report.failed == [oldest.name]
    assert report.dropped == [frames_of(oldest), frames_of(later), traces_of(oldest), traces_of(later)]
    assert (await maintain(store)).dropped == [oldest.name, later.name]


async def test_a_waived_day_goes_without_an_archive(store: MessageStore, conn: Connection) -> None:
    await require_archive(conn, MESSAGE)
    stored = await make_old_day(conn)
    await put_day(conn, MESSAGE, stored.day, DayState.WAIVED, reason="a load test's")

    assert stored.name in (await maintain(store)).dropped
    assert await state_of(conn, MESSAGE, stored.day) == ("DROPPED", "a load test's")


async def test_a_day_waits_for_a_run_that_is_at_it(store: MessageStore, conn: Connection) -> None:
    await require_archive(conn, MESSAGE)
    stored = await make_old_day(conn)
    await archive(conn, stored)
    await put_run(conn, MESSAGE, stored.day, RunState.RUNNING, lease_seconds=60)

    assert (await maintain(store)).waiting == [stored.name]
    (alarm,) = await list_alarms(conn)
    assert "a run of etl-1 is at it" in alarm.detail
    await conn.execute("UPDATE archive_run SET state = 'FAILED' WHERE state = 'RUNNING'")
    assert (await maintain(store)).dropped == [stored.name]


async def test_a_row_that_reaches_an_archived_day_keeps_it_until_it_is_archived_again(
    store: MessageStore, conn: Connection
) -> None:
    await require_archive(conn, MESSAGE)
    stored = await make_old_day(conn)
    await archive(conn, stored)
    await put_messages(conn, await make_queue(conn), range(10, 11), days_ago=8)

    assert (await maintain(store)).waiting == [stored.name]
    kept = await state_of(conn, MESSAGE, stored.day)
    assert kept[0] == "PENDING"
    assert kept[1] is not None
    assert "has 0 to 10, and 0 to 9 was archived" in kept[1]
    await archive(conn, stored)
    assert (await maintain(store)).dropped == [stored.name]


async def test_a_row_that_comes_after_the_permit_is_found_where_nothing_reaches_the_day_any_more(
    store: MessageStore, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await require_archive(conn, MESSAGE)
    stored = await make_old_day(conn)
    queue_id = await make_queue(conn)
    await archive(conn, stored)

    async def store_and_detach(other: Connection, partition: DayPartition) -> None:
        if partition.table == MESSAGE:
            await put_messages(conn, queue_id, range(10, 11), days_ago=8)
        await detach_partition(other, partition)

    with monkeypatch.context() as patched:
        patched.setattr(dropping, "detach_partition", store_and_detach)
        assert (await maintain(store)).waiting == [stored.name]

    (left_over, *_) = await stored_days(conn)
    assert left_over.partition is not None
    assert (left_over.name, left_over.partition.is_attached) == (stored.name, False)
    assert (await maintain(store)).waiting == [stored.name]
    assert (await list_alarms(conn))[0].detail.endswith("has 0 to 10, and 0 to 9 was archived")
    # Its offset is not given out again.
    assert await next_offsets(conn, [queue_id]) == {queue_id: 11}

    await archive(conn, left_over)
    assert (await maintain(store)).dropped == [stored.name]
    assert await state(conn, stored.day) == "DROPPED"


@pytest.mark.parametrize(
    "step", ["expire_day", "detach_partition", "raise_starts", "lock_detached", "let_go", "drop_detached"]
)
@pytest.mark.parametrize("is_required", [True, False])
async def test_wherever_a_broker_is_killed_the_next_round_of_another_one_finishes(
    store: MessageStore, conn: Connection, step: str, is_required: bool
) -> None:
    stored = await make_old_day(conn)
    key = await make_lane(conn, stored)
    if is_required:
        await require_archive(conn, MESSAGE)
    await archive(conn, stored)

    await _killed_at(store, step)
    assert await is_there(conn, stored.name)
    assert await state(conn, stored.day) == ("DROPPING" if is_required else "ARCHIVED")

    await maintain(store)

    assert not await is_there(conn, stored.name)
    assert not await is_there(conn, f"{stored.name}_held")
    assert await state(conn, stored.day) == "DROPPED"
    assert (await acked_offset(conn), await next_offsets(conn, [key.queue_id])) == (10, {key.queue_id: 10})


async def test_a_day_that_was_detached_when_the_archive_became_required_stays_until_it_is_archived(
    store: MessageStore, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = await make_old_day(conn)

    async def require_and_lock(other: Connection, partition: DayPartition) -> None:
        if partition.table == MESSAGE:
            await require_archive(conn, MESSAGE)
        await lock_detached(other, partition)

    with monkeypatch.context() as patched:
        patched.setattr(dropping, "lock_detached", require_and_lock)
        assert (await maintain(store)).waiting == [stored.name]

    assert await is_there(conn, stored.name)
    await archive(conn, (await stored_days(conn))[0])
    assert (await maintain(store)).dropped == [stored.name]


async def test_a_day_from_before_the_archive_was_required_goes(store: MessageStore, conn: Connection) -> None:
    stored = await make_old_day(conn)
    await require_archive(conn, MESSAGE, await today(conn))

    assert stored.name in (await maintain(store)).dropped
    assert await state(conn, stored.day) == "DROPPED"


async def test_a_waiting_day_goes_when_the_archive_is_not_required_any_more(
    store: MessageStore, conn: Connection
) -> None:
    await require_archive(conn, MESSAGE)
    stored = await make_old_day(conn)
    await maintain(store)
    await stop_requiring(conn, MESSAGE)

    assert (await maintain(store)).dropped == [stored.name]
    assert await list_alarms(conn) == []


async def _pending(_: MessageStore, __: Connection, ___: StoredDay) -> None:
    """Nobody has archived it."""


async def _pending_and_seen(store: MessageStore, _: Connection, __: StoredDay) -> None:
    await maintain(store)


async def _dropping(store: MessageStore, conn: Connection, stored: StoredDay) -> None:
    await archive(conn, stored)
    await _killed_at(store, "detach_partition")


async def _dropping_and_detached(store: MessageStore, conn: Connection, stored: StoredDay) -> None:
    await archive(conn, stored)
    await _killed_at(store, "lock_detached")


async def _detached_with_a_row_that_came_late(store: MessageStore, conn: Connection, stored: StoredDay) -> None:
    await _dropping_and_detached(store, conn, stored)
    await conn.execute(f"UPDATE {stored.name} SET queue_offset = 10 WHERE queue_offset = 9".encode())
    await maintain(store)
    assert await state(conn, stored.day) == "PENDING"


async def _raised_before_the_archive_was_required(store: MessageStore, conn: Connection, stored: StoredDay) -> None:
    await stop_requiring(conn, MESSAGE)
    await _killed_at(store, "detach_partition")
    await require_archive(conn, MESSAGE)
    await maintain(store)


async def _killed_at(store: MessageStore, step: str) -> None:
    async def die(*_: object) -> None:
        raise KilledError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(dropping, step, die)
        with pytest.raises(KilledError):
            await maintain(store)


@pytest.mark.parametrize(
    "bring_about",
    [
        _pending,
        _pending_and_seen,
        _dropping,
        _dropping_and_detached,
        _detached_with_a_row_that_came_late,
        _raised_before_the_archive_was_required,
    ],
)
async def test_a_broker_of_an_earlier_version_drops_no_messages_while_the_archive_is_required(
    store: MessageStore,
    conn: Connection,
    bring_about: Callable[[MessageStore, Connection, StoredDay], Awaitable[None]],
) -> None:
    await require_archive(conn, MESSAGE)
    stored = await make_old_day(conn)
    await bring_about(store, conn, stored)
    partition = await partition_named(conn, stored.name)

    with pytest.raises((psycopg.errors.ObjectNotInPrerequisiteState, psycopg.errors.DependentObjectsStillExist)):
        await drop_as_before(conn, partition)

    row = await (await conn.execute(f"SELECT count(*) FROM {stored.name}".encode())).fetchone()
    assert row == (10,)
    # And what it has done keeps nobody from going on.
    await archive(conn, (await stored_days(conn))[0])
    await maintain(store)
    assert not await is_there(conn, stored.name)


async def test_a_broker_of_an_earlier_version_drops_as_ever_while_the_archive_is_not_required(
    store: MessageStore, conn: Connection
) -> None:
    stored = await make_old_day(conn)
    key = await make_lane(conn, stored)

    await drop_as_before(conn, await partition_named(conn, stored.name))

    assert not await is_there(conn, stored.name)
    assert (await acked_offset(conn), await next_offsets(conn, [key.queue_id])) == (10, {key.queue_id: 10})
    assert frames_of(stored) in (await maintain(store)).dropped


async def partition_named(conn: Connection, name: str) -> DayPartition:
    return next(each for each in await list_partitions(conn, MESSAGE) if each.name == name)
