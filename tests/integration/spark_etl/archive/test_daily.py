"""What is done once a day: all that waits is archived, and one day that cannot be does not keep the others from it."""

from __future__ import annotations

import asyncio
from datetime import date

import pytest
from pyspark.sql import SparkSession

from msgbroker.contract.errors import DayStillOpenError
from msgdb.archive import listing
from msgdb.locks import QUEUE_LOCK_CLASS, queue_lock_key
from msgdb.log.partitions import day_bounds
from msgdb.names import DEAD_LETTER
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from spark_etl.archive.config import ArchiveConfig
from spark_etl.archive.daily import DailyReport, _list_waiting, run_daily
from tests.support.archive_runs import archive_day, bury
from tests.support.archives import day_of
from tests.support.rows import make_queue, put_messages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


async def archive_all(spark: SparkSession, config: ArchiveConfig) -> DailyReport:
    return await asyncio.to_thread(run_daily, lambda: spark, config, tables=["message"])


async def test_all_days_that_wait_are_archived_once_the_oldest_first(
    spark: SparkSession, conn: Connection, config: ArchiveConfig
) -> None:
    queue_id = await make_queue(conn)
    for days_ago in (3, 2):
        await put_messages(conn, queue_id, range(10 * (3 - days_ago), 10 * (4 - days_ago)), days_ago=days_ago)

    report = await archive_all(spark, config)

    assert [done.manifest.day for done in report.archived] == [day_of(3), day_of(2), day_of(1)]
    assert [done.manifest.rows for done in report.archived] == [10, 10, 0]
    assert report.failed == {}
    again = await archive_all(spark, config)
    assert (again.archived, again.failed, again.removed) == ([], {}, [])


async def test_where_no_day_waits_spark_is_not_started(conn: Connection, config: ArchiveConfig) -> None:
    await archive_day(conn, day_of(1))

    def start() -> SparkSession:
        raise AssertionError("there is nothing to do")

    report = await asyncio.to_thread(run_daily, start, config, tables=["message"])

    assert (report.archived, report.failed) == ([], {})


async def test_what_was_archived_years_ago_does_not_wait(
    conn: Connection, config: ArchiveConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Dead letters may be kept for ten years, and so many days are not on one page.
    monkeypatch.setattr(listing, "PAGE_MAX", 2)
    for ago in (5, 4, 3, 1):
        await archive_day(conn, await bury_on(conn, ago), DEAD_LETTER)
    waits = await bury_on(conn, 2)

    assert await _list_waiting(config, DEAD_LETTER) == [waits]


async def bury_on(conn: Connection, ago: int) -> date:
    day = day_of(ago)
    await bury(conn, day_bounds(day)[0])
    return day


async def test_a_day_that_is_still_open_is_told_and_archived_the_next_time(
    spark: SparkSession, store: MessageStore, conn: Connection, config: ArchiveConfig
) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(10), days_ago=1)
    async with store.transaction() as appending:
        await appending.execute("SELECT pg_advisory_xact_lock(%s, %s)", (QUEUE_LOCK_CLASS, queue_lock_key(queue_id)))
        report = await archive_all(spark, config)

        assert report.archived == []
        assert {type(error) for error in report.failed.values()} == {DayStillOpenError}

    assert [done.manifest.rows for done in (await archive_all(spark, config)).archived] == [10]
