"""Days and runs as they are listed: noted or not, and which of them has been waiting longest."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import pytest

from msgbroker.contract.errors import InvalidSettingError
from msgdb.archive import listing
from msgdb.archive.claims import claim, fail, waive
from msgdb.archive.listing import find_day, find_oldest_waiting, list_all_days, list_days, list_runs
from msgdb.archive.policy import require
from msgdb.archive.records import DayState, RunState
from msgdb.log.partitions import day_bounds
from msgdb.names import DEAD_LETTER, MESSAGE
from msgdb.postgres.connections import Connection
from tests.support.archive_runs import ACTOR, archive_day, bury, claim_day, days_ago, let_lapse, new_run_id, put_on

ZONES = ["UTC", "America/New_York", "Pacific/Kiritimati"]
LONG_AGO = date(2020, 1, 1)


async def require_from(conn: Connection, from_day: date, table: str = MESSAGE) -> None:
    await require(conn, table, actor=ACTOR, reason="audit", from_day=from_day)


async def states(conn: Connection, table: str = MESSAGE) -> dict[date, str]:
    return {day.day: day.state for day in await list_days(conn, table)}


def noon(day: date) -> datetime:
    return day_bounds(day)[0] + timedelta(hours=12)


# --- days -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", ZONES)
async def test_days_that_are_over_are_pending_though_nothing_was_noted_of_them(conn: Connection, zone: str) -> None:
    await conn.execute(f"SET timezone = '{zone}'")
    for ago in range(5):
        await put_on(conn, 7, range(ago, ago + 1), days_ago(ago))
    await require_from(conn, days_ago(3))

    # Not today, which is open.
    assert await states(conn) == {days_ago(ago): DayState.PENDING for ago in (1, 2, 3, 4)}
    newest, *_, oldest = await list_days(conn, MESSAGE)
    assert (newest.changed_at, newest.is_required, newest.is_stored, newest.is_waiting) == (None, True, True, True)
    assert (oldest.changed_at, oldest.is_required, oldest.is_stored, oldest.is_waiting) == (None, False, True, False)


async def test_without_a_policy_no_day_waits(conn: Connection) -> None:
    for ago in (1, 2):
        await put_on(conn, 7, range(ago, ago + 1), days_ago(ago))
    run = await archive_day(conn, days_ago(2))

    other, day = await list_days(conn, MESSAGE)

    assert (other.day, other.state, other.is_waiting) == (days_ago(1), DayState.PENDING, False)
    assert (day.day, day.state, day.is_required, day.is_waiting) == (days_ago(2), DayState.ARCHIVED, False, False)
    assert day.archived_by is not None
    assert (day.archived_by.run_id, day.archived_by.row_count) == (run.run_id, 1)
    assert day.archived_by.manifest == "day/run/_manifest.json"


async def test_a_day_is_listed_with_its_state_as_long_as_it_is_noted(conn: Connection) -> None:
    await put_on(conn, 7, range(1), days_ago(3))
    await put_on(conn, 7, range(1, 2), days_ago(2))
    await put_on(conn, 7, range(2, 3), days_ago(1))
    await require_from(conn, LONG_AGO)
    await archive_day(conn, days_ago(3))
    await conn.execute("UPDATE archive_day SET state = 'DROPPED'")
    await conn.execute(f"DROP TABLE message_p{days_ago(3):%Y%m%d}")
    await waive(conn, MESSAGE, days_ago(2), actor=ACTOR, reason="nobody needs it")

    days = await list_days(conn, MESSAGE)

    assert [(day.day, day.state, day.reason, day.is_stored, day.is_waiting) for day in days] == [
        (days_ago(1), DayState.PENDING, None, True, True),
        (days_ago(2), DayState.WAIVED, "nobody needs it", True, False),
        (days_ago(3), DayState.DROPPED, None, False, False),
    ]


async def test_a_pending_day_that_the_store_has_no_more_waits_for_nothing(conn: Connection) -> None:
    await put_on(conn, 7, range(1), days_ago(1))
    await require_from(conn, LONG_AGO)
    await fail(conn, await claim_day(conn, days_ago(1)), "disk full")
    await conn.execute(f"DROP TABLE message_p{days_ago(1):%Y%m%d}")

    (day,) = await list_days(conn, MESSAGE)

    assert (day.state, day.is_waiting) == (DayState.PENDING, False)


async def test_days_are_paged_whether_noted_or_not(conn: Connection) -> None:
    await require_from(conn, LONG_AGO)
    for ago in range(1, 8):
        await put_on(conn, 7, range(ago, ago + 1), days_ago(ago))
        if ago % 3 == 0:
            await archive_day(conn, days_ago(ago))

    pages: list[list[date]] = []
    before = None
    while page := await list_days(conn, MESSAGE, before=before, limit=2):
        pages.append([day.day for day in page])
        before = page[-1].day

    assert [len(page) for page in pages] == [2, 2, 2, 1]
    assert [day for page in pages for day in page] == [days_ago(ago) for ago in range(1, 8)]


@pytest.mark.parametrize("count", [0, 1, 4, 5])
async def test_all_days_are_more_than_a_page(conn: Connection, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(listing, "PAGE_MAX", 2)
    await bury(conn, *(noon(days_ago(ago)) for ago in range(1, count + 1)))

    assert [day.day for day in await list_all_days(conn, DEAD_LETTER)] == [days_ago(ago) for ago in range(1, count + 1)]


@pytest.mark.parametrize("zone", ZONES)
async def test_days_of_dead_letters_are_those_that_have_some(conn: Connection, zone: str) -> None:
    await conn.execute(f"SET timezone = '{zone}'")
    await require_from(conn, LONG_AGO, DEAD_LETTER)
    last_moment = day_bounds(days_ago(9))[1] - timedelta(microseconds=1)
    await bury(conn, noon(days_ago(0)), noon(days_ago(2)), noon(days_ago(2)), last_moment)

    assert await states(conn, DEAD_LETTER) == {days_ago(2): DayState.PENDING, days_ago(9): DayState.PENDING}


async def test_the_run_that_is_at_it_is_told(conn: Connection) -> None:
    await put_on(conn, 7, range(1), days_ago(1))
    first = await archive_day(conn, days_ago(1))
    second = await claim_day(conn, days_ago(1), holder="spark-2", again=True)

    day = await find_day(conn, MESSAGE, days_ago(1))

    assert day is not None
    assert day.archived_by is not None
    assert day.last_run is not None
    assert day.archived_by.run_id == first.run_id
    assert (day.last_run.run_id, day.last_run.holder, day.last_run.is_alive) == (second.run_id, "spark-2", True)


async def test_a_day_is_found_where_it_is_noted_or_stored_and_over(conn: Connection) -> None:
    await put_on(conn, 7, range(1), days_ago(1))
    unasked = await find_day(conn, MESSAGE, days_ago(1))
    assert unasked is not None
    assert (unasked.state, unasked.is_waiting) == (DayState.PENDING, False)

    await require_from(conn, days_ago(1))

    day = await find_day(conn, MESSAGE, days_ago(1))
    assert day is not None
    assert (day.state, day.is_waiting) == (DayState.PENDING, True)
    assert await find_day(conn, MESSAGE, days_ago(0)) is None, "it is not over"
    assert await find_day(conn, MESSAGE, days_ago(400)) is None, "the store does not have it"


async def test_runs_are_listed_the_newest_first_with_what_became_of_them(conn: Connection) -> None:
    await put_on(conn, 7, range(1), days_ago(1))
    await fail(conn, await claim_day(conn, days_ago(1)), "disk full")
    lost = await claim_day(conn, days_ago(1))
    await let_lapse(conn, lost)
    verified = await archive_day(conn, days_ago(1))

    runs = await list_runs(conn, MESSAGE, days_ago(1))

    assert [run.state for run in runs] == [RunState.VERIFIED, RunState.LOST, RunState.FAILED]
    assert (runs[0].run_id, runs[0].row_count, runs[0].is_alive) == (verified.run_id, 1, False)
    assert runs[2].failure == "disk full"
    assert [run.run_id for run in await list_runs(conn, MESSAGE, days_ago(1), limit=1)] == [verified.run_id]


async def test_days_of_a_table_that_is_not_archived_are_not_listed(conn: Connection) -> None:
    with pytest.raises(InvalidSettingError):
        await list_days(conn, "publisher_frame")
    with pytest.raises(InvalidSettingError):
        await find_day(conn, "publisher_frame", days_ago(1))


# --- what waits -------------------------------------------------------------------------------------------------------


async def why(conn: Connection) -> str | None:
    waiting = await find_oldest_waiting(conn)
    return None if waiting is None else waiting.reason


async def test_the_day_that_has_been_waiting_longest_is_found_of_all_tables(conn: Connection) -> None:
    await require_from(conn, days_ago(3))
    await require_from(conn, days_ago(6), DEAD_LETTER)
    for ago in range(8):
        await put_on(conn, 7, range(ago, ago + 1), days_ago(ago))
    await bury(conn, noon(days_ago(7)), noon(days_ago(5)))

    waiting = await find_oldest_waiting(conn)

    assert waiting is not None
    assert (waiting.table, waiting.day, waiting.reason) == (DEAD_LETTER, days_ago(5), "no run has archived it yet")
    assert 0 <= waiting.waits_seconds - 4 * 86_400 < 86_400

    await archive_day(conn, days_ago(5), DEAD_LETTER)
    waiting = await find_oldest_waiting(conn)
    assert waiting is not None
    assert (waiting.table, waiting.day) == (MESSAGE, days_ago(3))


async def test_nothing_waits_where_nothing_is_required_or_all_is_archived(conn: Connection) -> None:
    await put_on(conn, 7, range(1), days_ago(2))
    await put_on(conn, 7, range(1, 2), days_ago(1))
    assert await find_oldest_waiting(conn) is None

    await require_from(conn, LONG_AGO)
    await archive_day(conn, days_ago(2))
    await waive(conn, MESSAGE, days_ago(1), actor=ACTOR, reason="nobody needs it")

    assert await find_oldest_waiting(conn) is None


async def test_it_is_said_why_a_day_waits(conn: Connection) -> None:
    day = days_ago(1)
    await put_on(conn, 7, range(1), day)
    await require_from(conn, LONG_AGO)
    run = await claim_day(conn, day)
    assert await why(conn) == "spark-1 is archiving it"

    await let_lapse(conn, run)
    assert await why(conn) == "its last run was lost: the lease of spark-1 has passed"

    await fail(conn, run, "disk full")
    assert await why(conn) == "its last run failed: disk full"

    await archive_day(conn, day)
    await conn.execute("UPDATE archive_day SET state = 'PENDING', reason = 'queue 7 has more'")
    assert await why(conn) == "queue 7 has more"

    await claim(conn, MESSAGE, day, run_id=new_run_id(), holder="spark-2", lease_seconds=60)
    assert await why(conn) == "queue 7 has more; spark-2 is archiving it"


async def test_what_a_later_version_requires_of_a_table_of_its_own_is_passed_over(conn: Connection) -> None:
    await put_on(conn, 7, range(1), days_ago(1))
    await require_from(conn, LONG_AGO)
    await conn.execute("INSERT INTO archive_policy (table_name, required_from) VALUES ('a_later_one', '2020-01-01')")

    waiting = await find_oldest_waiting(conn)

    assert waiting is not None
    assert waiting.table == MESSAGE


async def test_a_day_that_was_dropped_and_has_rows_again_waits(conn: Connection) -> None:
    await put_on(conn, 7, range(1), days_ago(1))
    await require_from(conn, LONG_AGO)
    await archive_day(conn, days_ago(1))
    await conn.execute("UPDATE archive_day SET state = 'DROPPED'")

    assert await why(conn) == "it was dropped, and has rows again"
