"""Archiving a day, from its claim to its mark, with a real store, Spark and files."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from msgbroker.contract.errors import (
    ArchiveDiffersError,
    ArchivePlaceError,
    DayClaimedError,
    DayNotFoundError,
    DayStateError,
    RunLostError,
)
from msgdb.days.maintenance import Maintenance, MaintenanceConfig
from msgdb.log.queues import ensure_queues
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from spark_etl.archive import job
from spark_etl.archive.config import ArchiveConfig
from spark_etl.archive.daily import run_daily
from spark_etl.archive.job import run
from spark_etl.archive.planning import PartPlan, plan_parts
from spark_etl.archive.progress import Progress, Step
from spark_etl.archive.verify import verify
from spark_etl.files.places import Place, find_manifest, list_runs
from spark_etl.files.reading import list_files, read_days
from tests.support.archive_rows import require_archive
from tests.support.archive_runs import bury
from tests.support.archives import archive, day_of, rows_of_archive, rows_of_store
from tests.support.rows import make_queue, put_messages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


async def test_an_archived_day_has_the_rows_of_the_store(
    spark: SparkSession, conn: Connection, config: ArchiveConfig
) -> None:
    for topic_id in (1, 2):
        for queue in await ensure_queues(conn, topic_id, 1, 2):
            await put_messages(conn, queue.queue_id, range(5, 1_505), days_ago=1, body_bytes=1_000)
            await put_messages(conn, queue.queue_id, range(1_505, 1_510))
    told: list[Progress] = []

    done = await archive(spark, config, day_of(1), tell=told.append)

    manifest = done.manifest
    assert (manifest.rows, len(manifest.digests)) == (6_000, 4)
    assert len(manifest.files) > 4
    assert {(each.first_offset, each.last_offset, each.rows) for each in manifest.digests} == {(5, 1_504, 1_500)}
    wanted = await rows_of_store(conn, day_of(1))
    assert rows_of_archive(config, day_of(1)) == wanted
    read = read_days(spark, config.place, "message", day_of(1)).count()
    assert read == len(wanted)
    assert find_manifest(Place.at(config.place), "message", day_of(1)) == manifest
    row = await (await conn.execute("SELECT state, run_id FROM archive_day")).fetchone()
    assert row == ("ARCHIVED", manifest.run_id)
    assert [step for step in Step if any(each.step is step for each in told)] == [
        Step.CLAIMING, Step.CLOSING, Step.WRITING, Step.MARKING,
    ]  # fmt: skip
    verify(spark, config.place, day_of(1))


async def test_a_day_without_messages_is_a_manifest_without_files(
    spark: SparkSession, conn: Connection, config: ArchiveConfig
) -> None:
    done = await archive(spark, config, day_of(1))

    assert (done.manifest.rows, done.manifest.files) == (0, ())
    assert list_files(config.place, "message", day_of(1)) == []
    assert read_days(spark, config.place, "message", day_of(1)).collect() == []
    verify(spark, config.place, day_of(1))


async def test_a_notebook_can_archive_a_day_though_its_event_loop_runs(
    spark: SparkSession, conn: Connection, config: ArchiveConfig
) -> None:
    await put_messages(conn, await make_queue(conn), range(10), days_ago=1)

    assert run(spark, config, day_of(1)).manifest.rows == 10


async def test_a_further_run_has_a_directory_of_its_own_and_is_the_one_that_is_read(
    spark: SparkSession, conn: Connection, config: ArchiveConfig
) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(10), days_ago=1)
    first = await archive(spark, config, day_of(1))
    with pytest.raises(DayStateError):
        await archive(spark, config, day_of(1))

    second = await archive(spark, config, day_of(1), again=True)

    place = Place.at(config.place)
    assert list_runs(place, "message", day_of(1)) == [first.manifest.run_id, second.manifest.run_id]
    assert find_manifest(place, "message", day_of(1)) == second.manifest
    assert len(rows_of_archive(config, day_of(1))) == 10


async def test_one_run_at_a_time_has_a_day(spark: SparkSession, conn: Connection, config: ArchiveConfig) -> None:
    await put_messages(conn, await make_queue(conn), range(10), days_ago=1)
    refused: list[DayClaimedError] = []

    def rival() -> None:
        with pytest.raises(DayClaimedError, match="the first one") as raised:
            run(spark, replace(config, holder="another"), day_of(1))
        refused.append(raised.value)

    def tell(progress: Progress) -> None:
        if progress.step is Step.CLOSING:
            # A thread, because an event loop is running in this one.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(rival).result()

    await archive(spark, replace(config, holder="the first one"), day_of(1), tell=tell)

    assert len(refused) == 1


async def test_what_comes_to_a_day_that_was_dropped_is_added_to_its_manifest(
    spark: SparkSession, conn: Connection, config: ArchiveConfig
) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(10), days_ago=3)
    first = await archive(spark, config, day_of(3))
    await conn.execute(f"DROP TABLE message_p{day_of(3):%Y%m%d}".encode())
    await conn.execute("UPDATE archive_day SET state = 'DROPPED'")
    await put_messages(conn, queue_id, range(10, 15), days_ago=3)

    second = await archive(spark, config, day_of(3))

    assert second.manifest.base_run_id == first.manifest.run_id
    assert second.manifest.rows == 15
    assert [row[1] for row in rows_of_archive(config, day_of(3))] == list(range(15))
    verify(spark, config.place, day_of(3))


async def test_a_supplement_without_the_files_before_it_is_refused(
    spark: SparkSession, conn: Connection, config: ArchiveConfig, tmp_path: Path
) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(10), days_ago=3)
    await archive(spark, config, day_of(3))
    await conn.execute(f"DROP TABLE message_p{day_of(3):%Y%m%d}".encode())
    await conn.execute("UPDATE archive_day SET state = 'DROPPED'")
    await put_messages(conn, queue_id, range(10, 15), days_ago=3)

    with pytest.raises(ArchiveDiffersError, match="archived before are not here"):
        await archive(spark, replace(config, place=str(tmp_path / "elsewhere")), day_of(3))

    row = await (await conn.execute("SELECT state, failure FROM archive_run ORDER BY run_id DESC")).fetchone()
    assert row is not None
    assert row[0] == "FAILED"


async def test_dead_letters_are_archived_by_the_day_they_died(
    spark: SparkSession, conn: Connection, config: ArchiveConfig
) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(30), days_ago=1)
    copied = ("queue_id, queue_offset, stored_at, message_id, namespace, topic, event_code, key, ordering_key,"
              " headers, body, born_at, born_host, publisher_group, stress, redrives")  # fmt: skip
    await conn.execute(
        f"INSERT INTO dead_letter (group_id, group_name, died_at, attempts, reason, {copied})"
        f" SELECT 7, 'SG_POINTS', now() - interval '1 day' * (queue_offset % 3), 3, 'REJECTED', {copied}"
        " FROM message ORDER BY queue_offset".encode()
    )

    done = await archive(spark, config, day_of(1), table="dead_letter")

    assert done.manifest.rows == 10
    rows = read_days(spark, config.place, "dead_letter", day_of(1)).select("queue_offset", "group_name").collect()
    assert sorted(tuple(row) for row in rows) == [(offset, "SG_POINTS") for offset in range(1, 30, 3)]
    verify(spark, config.place, day_of(1), table="dead_letter")


async def test_dead_letters_that_were_deleted_since_are_in_the_archive_once_beside_those_that_came(
    spark: SparkSession, conn: Connection, config: ArchiveConfig
) -> None:
    died_at = datetime.now(UTC) - timedelta(days=1)
    letters = await bury(conn, *[died_at] * 10)
    await archive(spark, config, died_at.date(), table="dead_letter")
    await conn.execute("DELETE FROM dead_letter WHERE id < %s", (letters[4][0],))
    letters += await bury(conn, died_at, died_at)

    done = await archive(spark, config, died_at.date(), table="dead_letter", again=True)

    assert done.manifest.rows == 12
    rows = read_days(spark, config.place, "dead_letter", died_at.date()).select("id").collect()
    assert sorted(row.id for row in rows) == [letter_id for letter_id, _ in letters]
    verify(spark, config.place, died_at.date(), table="dead_letter")


async def test_a_file_that_was_changed_or_is_missing_is_found(
    spark: SparkSession, conn: Connection, config: ArchiveConfig
) -> None:
    await put_messages(conn, await make_queue(conn), range(10), days_ago=1)
    done = await archive(spark, config, day_of(1))
    (file,) = list_files(config.place, "message", day_of(1))
    flip_a_bit(Path(file))

    with pytest.raises(ArchiveDiffersError, match="was changed since it was written"):
        verify(spark, config.place, day_of(1))
    await asyncio.to_thread(Path(file).unlink)
    with pytest.raises(ArchiveDiffersError, match=f"{done.manifest.files[0].path} is missing"):
        verify(spark, config.place, day_of(1))
    with pytest.raises(DayNotFoundError):
        verify(spark, config.place, day_of(2))


async def test_a_place_that_cannot_be_written_fails_the_run_and_frees_the_day(
    spark: SparkSession, store: MessageStore, conn: Connection, config: ArchiveConfig, tmp_path: Path
) -> None:
    await put_messages(conn, await make_queue(conn), range(10), days_ago=1)
    (tmp_path / "file").write_text("")

    with pytest.raises(ArchivePlaceError, match="no archive at"):
        await archive(spark, replace(config, place=str(tmp_path / "file")), day_of(1))

    assert (await archive(spark, config, day_of(1))).manifest.rows == 10


async def test_a_run_that_read_on_after_its_lease_had_passed_leaves_no_manifest(
    spark: SparkSession, conn: Connection, config: ArchiveConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    died_at = datetime.now(UTC) - timedelta(days=95)
    await bury(conn, *[died_at] * 10)
    done = await archive(spark, config, died_at.date(), table="dead_letter")
    await require_archive(conn, "dead_letter")

    def plan(*given: Any) -> list[PartPlan]:
        """Let the run's lease have passed, unnoticed, and a broker drop the day."""
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, lapse_and_drop(config.url)).result()
        return plan_parts(*given)

    monkeypatch.setattr(job, "plan_parts", plan)
    with pytest.raises(RunLostError):
        await archive(spark, config, died_at.date(), table="dead_letter", again=True)

    assert find_manifest(Place.at(config.place), "dead_letter", died_at.date()) == done.manifest


async def lapse_and_drop(url: str) -> None:
    async with MessageStore.open(url) as store:
        async with store.connection() as conn:
            await conn.execute("UPDATE archive_run SET lease_until = now() WHERE state = 'RUNNING'")
        report = await Maintenance(store, MaintenanceConfig(), group_names=dict).maintain_once()
    assert report is not None
    assert report.deleted_row_count == 10


async def test_two_stores_do_not_archive_to_one_place(
    spark: SparkSession, store: MessageStore, conn: Connection, config: ArchiveConfig
) -> None:
    await put_messages(conn, await make_queue(conn), range(10), days_ago=1)
    await store.follow_history()
    await archive(spark, config, day_of(1))
    await conn.execute("UPDATE log_history SET history_id = gen_random_uuid()")

    for act in (lambda: run(spark, config, day_of(1), again=True), lambda: run_daily(lambda: spark, config)):
        with pytest.raises(ArchivePlaceError, match="the archive of another message store"):
            await asyncio.to_thread(act)

    runs = await (await conn.execute("SELECT count(*) FROM archive_run")).fetchone()
    assert runs == (1,)
