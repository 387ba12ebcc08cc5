"""Each table is kept for as long as is said of it; dead letters go by the day they died, in batches."""

from __future__ import annotations

import asyncio
from datetime import date, timedelta
from typing import Any

import pytest

from msgbroker.contract.errors import DayStateError
from msgdb.archive.closing import close_day
from msgdb.archive.records import DayState
from msgdb.archive.stored_days import StoredDay, list_stored_days
from msgdb.day_tables import DAY_TABLES
from msgdb.days import deleting, dropping
from msgdb.days.maintenance import Maintenance
from msgdb.days.maintenance import MaintenanceConfig as Config
from msgdb.days.rounds import MaintenanceReport
from msgdb.log.partitions import day_bounds, ensure_for, today
from msgdb.names import DEAD_LETTER, MESSAGE, PUBLISHER_FRAME
from msgdb.postgres.connections import Connection
from msgdb.reports.alarms import list_alarms
from msgdb.store import MessageStore
from tests.support.archive_rows import archive, put_day, require_archive, state_of
from tests.support.archive_runs import archive_day, bury, claim_day, mark
from tests.support.eventually import eventually
from tests.support.rows import GROUP_NAMES
from tests.support.waiting import until_someone_waits_for_a_lock

_PUT = """
INSERT INTO dead_letter (group_id, group_name, died_at, attempts, reason, queue_id, queue_offset, stored_at, message_id,
                         namespace, topic, event_code, body, born_at, stress)
SELECT 7, 'SG_POINTS', %(first)s::timestamptz + o * interval '1 second', 16, 'REJECTED', 1, o, %(first)s,
       gen_random_uuid(), 'default', 'TP', 'EC', '', now(), false
FROM generate_series(1, %(count)s) AS o
ON CONFLICT (group_id, queue_id, queue_offset, stored_at) DO NOTHING
"""
_WAIT_IN_DELETE = """
CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(42);
    RETURN NULL;
END
$$;
CREATE TRIGGER wait BEFORE DELETE ON dead_letter FOR EACH STATEMENT EXECUTE FUNCTION wait();
"""


async def maintain(store: MessageStore, **settings: Any) -> MaintenanceReport:
    keeper = Maintenance(store, Config(**settings), group_names=lambda: GROUP_NAMES)
    report = await keeper.maintain_once()
    assert report is not None
    return report


async def put_dead_letters(conn: Connection, days_ago: int, count: int = 3) -> StoredDay:
    """Let so many have died on one day, which is returned; those of a day that are there already stay."""
    day = await today(conn) - timedelta(days=days_ago)
    await conn.execute(_PUT, {"first": f"{day} 00:00+00", "count": count})
    return next(each for each in await days_of_dead_letters(conn) if each.day == day)


async def days_of_dead_letters(conn: Connection) -> list[StoredDay]:
    return await list_stored_days(conn, DAY_TABLES[DEAD_LETTER], await today(conn) + timedelta(days=1))


async def count_of(conn: Connection) -> int:
    row = await (await conn.execute("SELECT count(*) FROM dead_letter")).fetchone()
    assert row is not None
    return int(row[0])


async def state(conn: Connection, day: date) -> tuple[str | None, str | None]:
    return await state_of(conn, DEAD_LETTER, day)


async def test_each_table_is_kept_for_as_long_as_is_said_of_it(store: MessageStore, conn: Connection) -> None:
    day = await today(conn)
    for days in (3, 4, 5):
        await ensure_for(conn, day - timedelta(days=days))
        await put_dead_letters(conn, days)

    report = await maintain(store, retention_days={MESSAGE: 2, PUBLISHER_FRAME: 4, DEAD_LETTER: 3})

    gone = {table: [day - timedelta(days=days) for days in kept] for table, kept in _GONE.items()}
    assert report.dropped == [
        *(f"{MESSAGE}_p{each:%Y%m%d}" for each in gone[MESSAGE]),
        *(f"{PUBLISHER_FRAME}_p{each:%Y%m%d}" for each in gone[PUBLISHER_FRAME]),
        *(f"{DEAD_LETTER} {each}" for each in gone[DEAD_LETTER]),
    ]


_GONE = {MESSAGE: (5, 4, 3), PUBLISHER_FRAME: (5,), DEAD_LETTER: (5, 4)}


async def test_the_days_of_dead_letters_are_those_in_utc_that_have_some(store: MessageStore, conn: Connection) -> None:
    day = await today(conn)
    await conn.execute("SET TIME ZONE 'Asia/Shanghai'")
    for days_ago in (1, 30, 40):
        await put_dead_letters(conn, days_ago, 5)
        await conn.execute(
            "UPDATE dead_letter SET died_at = date_trunc('day', died_at, 'UTC') + interval '24 hours' - interval '1 us'"
            " WHERE queue_offset = 5"
        )

    assert [each.day for each in await days_of_dead_letters(conn)] == [day - timedelta(days=d) for d in (40, 30, 1)]
    await conn.execute("RESET TIME ZONE")


async def test_dead_letters_are_kept_for_three_months_by_default(store: MessageStore, conn: Connection) -> None:
    kept, gone = await put_dead_letters(conn, 90), await put_dead_letters(conn, 91)

    report = await maintain(store)

    assert (report.dropped, report.deleted_row_count) == ([gone.name], 3)
    assert [each.day for each in await days_of_dead_letters(conn)] == [kept.day]
    assert await state(conn, gone.day) == (None, None)
    assert (await maintain(store)).is_empty


async def test_dead_letters_whose_archive_is_required_go_once_they_are_archived(
    store: MessageStore, conn: Connection
) -> None:
    await require_archive(conn, DEAD_LETTER)
    waiting, archived = await put_dead_letters(conn, 92), await put_dead_letters(conn, 91)
    await archive(conn, archived)

    for dropped in ([archived.name], []):
        report = await maintain(store)
        assert (report.waiting, report.dropped) == ([waiting.name], dropped)

    assert await state(conn, archived.day) == ("DROPPED", None)
    (alarm,) = await list_alarms(conn)
    assert (alarm.kind, alarm.thing) == ("DAY_NOT_ARCHIVED", waiting.name)
    await archive(conn, waiting)
    assert (await maintain(store)).dropped == [waiting.name]
    assert await list_alarms(conn) == []


async def test_dead_letters_that_were_purged_since_are_not_missed(store: MessageStore, conn: Connection) -> None:
    await require_archive(conn, DEAD_LETTER)
    stored = await put_dead_letters(conn, 91)
    await archive(conn, stored)
    await conn.execute("DELETE FROM dead_letter WHERE id = (SELECT max(id) FROM dead_letter)")

    assert (await maintain(store)).dropped == [stored.name]


@pytest.mark.parametrize(
    "change, said",
    [
        ("UPDATE dead_letter SET message_id = gen_random_uuid() WHERE queue_offset = 3", "is another one"),
        ("UPDATE archive_range SET last_offset = last_offset - 1", "1 rows are outside of"),
        ("UPDATE archive_range SET row_count = 2", "there are 3 rows, and 2 were archived"),
        ("DELETE FROM archive_range", "there are rows, and nothing was archived"),
    ],
)
async def test_dead_letters_that_are_not_what_was_archived_wait(
    store: MessageStore, conn: Connection, change: str, said: str
) -> None:
    await require_archive(conn, DEAD_LETTER)
    stored = await put_dead_letters(conn, 91)
    await archive(conn, stored)
    await conn.execute(change.encode())

    assert (await maintain(store)).waiting == [stored.name]
    kept, reason = await state(conn, stored.day)
    assert (kept, said in (reason or "")) == ("PENDING", True)
    assert await count_of(conn) == 3
    await archive(conn, stored)
    assert (await maintain(store)).dropped == [stored.name]


async def test_a_dead_letter_that_comes_after_the_permit_does_not_go_with_the_others(
    store: MessageStore, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await require_archive(conn, DEAD_LETTER)
    stored = await put_dead_letters(conn, 91)
    await archive(conn, stored)
    delete_rows = deleting.delete_rows

    async def put_and_delete(*given: Any, **named: Any) -> tuple[int, bool]:
        await put_dead_letters(conn, 91, 4)
        return await delete_rows(*given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(dropping, "delete_rows", put_and_delete)
        report = await maintain(store)

    assert (report.waiting, report.deleted_row_count) == ([stored.name], 3)
    assert (await state(conn, stored.day))[0] == "PENDING"
    assert await count_of(conn) == 1
    await archive(conn, stored)
    assert (await maintain(store)).dropped == [stored.name]


async def test_many_dead_letters_go_in_batches_and_in_several_rounds(
    store: MessageStore, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deleting, "BATCH_ROWS", 10)
    await require_archive(conn, DEAD_LETTER)
    stored = await put_dead_letters(conn, 91, 25)
    await archive(conn, stored)

    rounds = [await maintain(store, delete_seconds=0) for _ in range(3)]

    assert [each.deleted_row_count for each in rounds] == [10, 10, 5]
    assert [each.postponed for each in rounds] == [[stored.name], [stored.name], []]
    assert rounds[-1].dropped == [stored.name]
    assert await state(conn, stored.day) == ("DROPPED", None)


async def test_many_of_one_moment_go_in_one_round(
    store: MessageStore, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deleting, "BATCH_ROWS", 10)
    stored = await put_dead_letters(conn, 91, 95)
    await conn.execute("UPDATE dead_letter SET died_at = date_trunc('day', died_at, 'UTC')")

    report = await maintain(store)

    assert (report.deleted_row_count, report.dropped) == (95, [stored.name])


async def test_what_is_left_of_a_day_stays_when_its_archive_becomes_required_while_it_is_deleted(
    store: MessageStore, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deleting, "BATCH_ROWS", 10)
    stored = await put_dead_letters(conn, 91, 25)
    await conn.execute(_WAIT_IN_DELETE)
    async with store.connection() as holding, store.connection() as watching:
        async with holding.transaction():
            await holding.execute("SELECT pg_advisory_xact_lock(42)")
            maintaining = asyncio.create_task(maintain(store))
            await until_someone_waits_for_a_lock(watching)
            requiring = asyncio.create_task(require_archive(conn, DEAD_LETTER))
            await eventually(lambda: has_come_to_it(requiring, conn, watching))
        await requiring
        report = await maintaining

    assert (report.deleted_row_count, report.waiting) == (10, [stored.name])
    assert await count_of(conn) == 15


async def has_come_to_it(task: asyncio.Task[None], conn: Connection, watching: Connection) -> bool:
    """Return whether the task is done, or waits on its connection for somebody else."""
    blocking = await watching.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", (conn.info.backend_pid,))
    return task.done() or await blocking.fetchone() == (True,)


async def test_a_dead_letter_that_somebody_else_is_at_is_not_waited_for(store: MessageStore, conn: Connection) -> None:
    stored = await put_dead_letters(conn, 91)
    async with store.transaction() as purging:
        await purging.execute("SELECT * FROM dead_letter WHERE queue_offset = 2 FOR UPDATE")

        report = await maintain(store)

    assert (report.deleted_row_count, report.postponed) == (2, [stored.name])
    assert (await maintain(store)).dropped == [stored.name]


async def test_a_broker_that_is_killed_while_it_deletes_is_followed_by_one_that_goes_on(
    store: MessageStore, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deleting, "BATCH_ROWS", 10)
    await require_archive(conn, DEAD_LETTER)
    stored = await put_dead_letters(conn, 91, 25)
    await archive(conn, stored)
    await maintain(store, delete_seconds=0)
    assert (await state(conn, stored.day), await count_of(conn)) == (("DROPPING", None), 15)

    report = await maintain(store)

    assert (report.deleted_row_count, report.dropped) == (15, [stored.name])
    assert await state(conn, stored.day) == ("DROPPED", None)


async def test_of_a_day_that_was_deleted_in_part_the_next_run_lists_what_was_archived_before(
    store: MessageStore, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deleting, "BATCH_ROWS", 10)
    await require_archive(conn, DEAD_LETTER)
    stored = await put_dead_letters(conn, 91, 25)
    first = await archive(conn, stored)
    await maintain(store, delete_seconds=0)
    # The clock was set back for a moment.
    ((late, _),) = await bury(conn, day_bounds(stored.day)[0])
    assert (await maintain(store)).waiting == [stored.name]
    assert await count_of(conn) == 16

    run = await claim_day(conn, stored.day, DEAD_LETTER)
    closed = await close_day(conn, run)
    await mark(conn, run, closed)

    assert run.base_run_id == first
    assert [(each.first_offset, each.last_offset) for each in closed.ranges] == [(late, late)]
    report = await maintain(store)
    assert (report.deleted_row_count, report.dropped) == (16, [stored.name])


async def test_what_was_purged_stays_in_the_archive_when_its_day_is_archived_again(
    store: MessageStore, conn: Connection
) -> None:
    await require_archive(conn, DEAD_LETTER)
    stored = await put_dead_letters(conn, 91)
    first = await archive(conn, stored)
    await conn.execute("DELETE FROM dead_letter WHERE queue_offset = 2")

    run = await archive_day(conn, stored.day, DEAD_LETTER, again=True)

    assert run.base_run_id == first
    assert (await maintain(store)).dropped == [stored.name]


@pytest.mark.parametrize("from_day", [None, date(2999, 1, 1)])
async def test_no_run_takes_what_is_left_of_a_day_for_all_of_it_though_its_archive_is_not_required(
    store: MessageStore, conn: Connection, monkeypatch: pytest.MonkeyPatch, from_day: date | None
) -> None:
    monkeypatch.setattr(deleting, "BATCH_ROWS", 10)
    if from_day is not None:
        await require_archive(conn, DEAD_LETTER, from_day)
    stored = await put_dead_letters(conn, 91, 25)
    await archive(conn, stored)
    run = await claim_day(conn, stored.day, DEAD_LETTER, again=True)

    report = await maintain(store, delete_seconds=0)

    assert (report.waiting, report.deleted_row_count) == ([stored.name], 0)
    await mark(conn, run, await close_day(conn, run))
    assert (await maintain(store, delete_seconds=0)).deleted_row_count == 10
    with pytest.raises(DayStateError):
        await claim_day(conn, stored.day, DEAD_LETTER, again=True)
    assert (await maintain(store)).dropped == [stored.name]


class KilledError(BaseException):
    """The broker ends here."""


@pytest.mark.parametrize("is_required", [True, False])
async def test_a_broker_that_is_killed_after_the_last_row_is_followed_by_one_that_notes_it(
    store: MessageStore, conn: Connection, is_required: bool
) -> None:
    if is_required:
        await require_archive(conn, DEAD_LETTER)
    stored = await put_dead_letters(conn, 91)
    await archive(conn, stored)

    async def die(*_: object) -> None:
        raise KilledError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(dropping, "let_go", die)
        with pytest.raises(KilledError):
            await maintain(store)
    assert (await state(conn, stored.day), await count_of(conn)) == (("DROPPING", None), 0)

    assert (await maintain(store)).dropped == [stored.name]

    assert await state(conn, stored.day) == ("DROPPED", None)
    assert (await maintain(store)).is_empty


async def test_dead_letters_that_were_waived_go_without_an_archive(store: MessageStore, conn: Connection) -> None:
    await require_archive(conn, DEAD_LETTER)
    stored = await put_dead_letters(conn, 91)
    await put_day(conn, DEAD_LETTER, stored.day, DayState.WAIVED, reason="of a load test")

    assert (await maintain(store)).dropped == [stored.name]
    assert await state(conn, stored.day) == ("DROPPED", "of a load test")


async def test_of_many_days_that_wait_some_have_an_alarm_each_and_one_tells_of_the_rest(
    store: MessageStore, conn: Connection
) -> None:
    await require_archive(conn, DEAD_LETTER)
    for days_ago in range(91, 121):
        await put_dead_letters(conn, days_ago, 1)

    report = await maintain(store)

    assert len(report.waiting) == 30
    alarms = await list_alarms(conn)
    assert len(alarms) == 21
    assert "more days of dead_letter" in {alarm.thing for alarm in alarms}
