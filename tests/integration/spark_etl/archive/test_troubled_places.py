"""A place that fails in the middle: the run fails with the reason, and its day is free at once."""

from __future__ import annotations

import asyncio
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from msgbroker.contract.errors import ArchiveDiffersError, ArchivePlaceError, ManifestUnreadableError
from msgdb.postgres.connections import Connection
from spark_etl.archive.config import ArchiveConfig
from spark_etl.archive.daily import run_daily
from spark_etl.archive.progress import Progress, Step
from spark_etl.archive.verify import verify
from spark_etl.files.places import Place, find_manifest, run_directory
from spark_etl.files.reading import list_files
from tests.support.archives import archive, day_of, rows_of_archive, rows_of_store, state_of
from tests.support.rows import make_queue, put_messages
from tests.support.spark_workers import list_workers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@contextmanager
def files_of_workers_limited(byte_count: int) -> Iterator[None]:
    """Let no file of Spark's workers in Python become larger: a write fails then as on a disk that is full."""
    workers = list_workers()
    assert workers, "one task has run before"
    for limit in (byte_count, resource.RLIM_INFINITY):
        for worker in workers:
            with suppress(psutil.NoSuchProcess):
                worker.rlimit(psutil.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        if limit == byte_count:
            yield


def write(path: str, content: bytes) -> None:
    Path(path).write_bytes(content)


def cut(path: str, byte_count: int) -> bytes:
    """Take the end of a file away, and return what it was."""
    content = Path(path).read_bytes()
    write(path, content[:-byte_count])
    return content


async def check_failed_and_free(
    spark: SparkSession, conn: Connection, config: ArchiveConfig, day: date, why: str
) -> None:
    """See that the last run of the day has failed, and archive it."""
    row = await (await conn.execute("SELECT failure FROM archive_run ORDER BY run_id DESC LIMIT 1")).fetchone()
    assert row is not None
    assert why in row[0]
    assert find_manifest(Place.at(config.place), "message", day) is None
    assert await state_of(conn, day) == ("PENDING", ["FAILED"])

    await archive(spark, config, day)

    assert await state_of(conn, day) == ("ARCHIVED", ["FAILED", "VERIFIED"])
    assert rows_of_archive(config, day) == await rows_of_store(conn, day)


async def test_a_disk_that_is_full_fails_the_run(spark: SparkSession, conn: Connection, config: ArchiveConfig) -> None:
    await put_messages(conn, await make_queue(conn), range(5_000), days_ago=1)
    # What is to be limited is there.
    spark.sparkContext.parallelize(range(2), 2).map(str).collect()

    with files_of_workers_limited(10_000), pytest.raises(ArchivePlaceError, match="File too large") as raised:
        await archive(spark, config, day_of(1))

    assert raised.value.reason == "ARCHIVE_PLACE"
    await check_failed_and_free(spark, conn, config, day_of(1), "File too large")


async def test_a_directory_that_is_taken_away_in_the_middle_fails_the_run(
    spark: SparkSession, conn: Connection, config: ArchiveConfig
) -> None:
    await put_messages(conn, await make_queue(conn), range(2_000), days_ago=1, body_bytes=2_000)

    def take_away(progress: Progress) -> None:
        for directory in Path(config.place).glob("*/*/run=*"):
            if progress.step is Step.WRITING and directory.is_dir():
                shutil.rmtree(directory)
                directory.write_text("")

    with pytest.raises((ArchivePlaceError, ArchiveDiffersError)):
        await archive(spark, config, day_of(1), tell=take_away)

    await asyncio.to_thread(Place.at(config.place).filesystem.delete_dir, f"{config.place}/message")
    await check_failed_and_free(spark, conn, config, day_of(1), "archive")


async def test_a_file_that_this_process_does_not_see_is_listed_in_no_manifest(
    spark: SparkSession, conn: Connection, config: ArchiveConfig
) -> None:
    await put_messages(conn, await make_queue(conn), range(10), days_ago=1)

    def hide(progress: Progress) -> None:
        if progress.step is Step.MARKING:
            for file in Path(config.place).glob("*/*/*/part-*"):
                file.rename(file.with_name("on-another-machine"))

    with pytest.raises(ArchiveDiffersError, match="is not there as it was written"):
        await archive(spark, config, day_of(1), tell=hide)

    await check_failed_and_free(spark, conn, config, day_of(1), "is not there as it was written")


async def test_a_base_that_is_damaged_fails_the_supplement(
    spark: SparkSession, conn: Connection, config: ArchiveConfig
) -> None:
    queue_id, day = await make_queue(conn), day_of(3)
    await put_messages(conn, queue_id, range(10), days_ago=3)
    base = (await archive(spark, config, day)).manifest
    await conn.execute(f"DROP TABLE message_p{day:%Y%m%d}".encode())
    await conn.execute("UPDATE archive_day SET state = 'DROPPED'")
    await put_messages(conn, queue_id, range(10, 15), days_ago=3)
    (file,) = list_files(config.place, "message", day)
    manifest = f"{config.place}/{run_directory('message', day, base.run_id)}/_manifest.json"

    whole = cut(manifest, 200)
    with pytest.raises(ManifestUnreadableError):
        await archive(spark, config, day)
    with pytest.raises(ManifestUnreadableError):
        verify(spark, config.place, day)
    write(manifest, whole)
    content = cut(file, 1)
    with pytest.raises(ArchiveDiffersError, match="is not there as it was written"):
        await archive(spark, config, day)
    write(file, content)

    assert (await archive(spark, config, day)).manifest.rows == 15
    assert await state_of(conn, day) == ("ARCHIVED", ["VERIFIED", "FAILED", "FAILED", "VERIFIED"])


async def test_a_damaged_manifest_of_another_day_keeps_no_day_from_being_archived(
    spark: SparkSession, conn: Connection, config: ArchiveConfig
) -> None:
    await put_messages(conn, await make_queue(conn), range(10), days_ago=1)
    place, damaged = Place.at(config.place), day_of(1) - timedelta(days=30)
    directory = run_directory("message", damaged, (await archive(spark, config, day_of(1))).manifest.run_id)
    place.make_directory(directory)
    write(f"{place.below(directory)}/_manifest.json", b"{")

    await put_messages(conn, await make_queue(conn, 2), range(10), days_ago=2)

    report = await asyncio.to_thread(run_daily, lambda: spark, replace(config, holder="daily"))

    assert report.failed == {}
    assert [done.manifest.day for done in report.archived] == [day_of(2)]
