"""A driver that ends anywhere on its way: its day is archived again, and what readers were given was right."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from msgdb.postgres.connections import Connection
from spark_etl.archive.config import ArchiveConfig
from spark_etl.archive.sweep import sweep
from spark_etl.archive.verify import verify
from spark_etl.files.places import Place, find_manifest, list_runs, read_manifest, run_directory
from tests.support.archiver import Archiver, let_go, started_tasks
from tests.support.archives import archive, day_of, is_lapsed, rows_of_archive, rows_of_store, state_of
from tests.support.eventually import eventually
from tests.support.rows import make_queue, put_messages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

# Of each way to end: whether readers find the day then, and what it is.
ENDS = {
    "killed before the manifest": (False, "PENDING"),
    "killed in the manifest": (False, "PENDING"),
    "killed before the mark": (True, "PENDING"),
    "killed after the mark": (True, "ARCHIVED"),
    "tasks that stay": (False, "PENDING"),
}


class Archivers:
    """Drivers of a test, all of which end with it."""

    def __init__(self, config: ArchiveConfig, directory: Path) -> None:
        self._config = config
        self._directory = directory
        self._started: list[Archiver] = []

    def start(self, way: str, days_ago: int = 1) -> Archiver:
        log_file = self._directory / f"{way}.log"
        self._started.append(Archiver.start(self._config, day_of(days_ago), way, log_file))
        return self._started[-1]

    def end(self) -> None:
        for each in self._started:
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)
            each.logged.end()


@pytest.fixture
def archivers(config: ArchiveConfig, tmp_path: Path) -> Iterator[Archivers]:
    archivers = Archivers(config, tmp_path)
    yield archivers
    archivers.end()


async def test_a_driver_that_is_killed_anywhere_leaves_a_day_that_is_archived_again(
    spark: SparkSession, conn: Connection, config: ArchiveConfig, archivers: Archivers
) -> None:
    queue_id = await make_queue(conn)
    place = Place.at(config.place)
    days = dict(zip(ENDS, range(1, 6), strict=True))
    for days_ago in sorted(days.values(), reverse=True):
        first = (5 - days_ago) * 3_000
        await put_messages(conn, queue_id, range(first, first + 3_000), days_ago=days_ago, body_bytes=1_000)
    started = {way: archivers.start(way, days_ago) for way, days_ago in days.items()}

    await eventually(lambda: started_tasks(config.place), 90, what="tasks that are in the middle")
    started["tasks that stay"].logged.kill()

    for way, (is_listed, state) in ENDS.items():
        day = day_of(days[way])
        assert await asyncio.to_thread(started[way].outcome, 90) == "KILLED", started[way].logged.log
        assert (await state_of(conn, day))[0] == state, way
        wanted = await rows_of_store(conn, day)
        assert (find_manifest(place, "message", day) is not None) == is_listed, way
        if is_listed:
            assert rows_of_archive(config, day) == wanted, way
        await eventually(partial(is_lapsed, config.url, day))

        done = await archive(spark, config, day, again=state == "ARCHIVED")

        assert (await state_of(conn, day)) == ("ARCHIVED", ["VERIFIED" if state == "ARCHIVED" else "LOST", "VERIFIED"])
        assert rows_of_archive(config, day) == wanted, way
        assert find_manifest(place, "message", day) == done.manifest
        verify(spark, config.place, day)
        listed = {Path(file.path).name for file in done.manifest.files}
        left = [run_id for run_id in list_runs(place, "message", day) if run_id != done.manifest.run_id]
        assert len(left) == 1, way
        assert not listed & set(place.list_directory(run_directory("message", day, left[0])))
    assert len(sweep(place, "message", grace=timedelta(), in_use=())) == len(ENDS)
    for days_ago in days.values():
        assert len(list_runs(place, "message", day_of(days_ago))) == 1
        verify(spark, config.place, day_of(days_ago))


async def test_a_run_that_stood_still_while_another_took_its_day_changes_nothing(
    spark: SparkSession, conn: Connection, config: ArchiveConfig, archivers: Archivers
) -> None:
    await put_messages(conn, await make_queue(conn), range(3_000), days_ago=1, body_bytes=1_000)
    zombie = archivers.start("stopped before the manifest")
    process = psutil.Process(zombie.pid)
    await eventually(lambda: process.status() == psutil.STATUS_STOPPED, 60, what="it stands still")
    await eventually(lambda: is_lapsed(config.url, day_of(1)))
    done = await archive(spark, config, day_of(1))
    runs = await (await conn.execute("SELECT * FROM archive_run WHERE state = 'VERIFIED'")).fetchall()

    process.resume()

    assert await asyncio.to_thread(zombie.outcome) == "RUN_LOST", zombie.logged.log
    place = Place.at(config.place)
    runs_there = list_runs(place, "message", day_of(1))
    manifests = [read_manifest(place, run_directory("message", day_of(1), run_id)) for run_id in runs_there]
    assert len(manifests) == 2
    assert None not in manifests, "it did write its own"
    assert find_manifest(place, "message", day_of(1)) == done.manifest
    assert rows_of_archive(config, day_of(1)) == await rows_of_store(conn, day_of(1))
    assert await state_of(conn, day_of(1)) == ("ARCHIVED", ["LOST", "VERIFIED"])
    assert await (await conn.execute("SELECT * FROM archive_run WHERE state = 'VERIFIED'")).fetchall() == runs


async def test_a_run_that_is_interrupted_frees_its_day_at_once(
    spark: SparkSession, conn: Connection, config: ArchiveConfig, archivers: Archivers
) -> None:
    await put_messages(conn, await make_queue(conn), range(3_000), days_ago=1, body_bytes=1_000)
    driver = archivers.start("tasks that stay")
    await eventually(lambda: started_tasks(config.place), 60, what="tasks that are in the middle")

    os.kill(driver.pid, signal.SIGINT)

    assert await asyncio.to_thread(driver.outcome, 20) == "INTERRUPTED", driver.logged.log
    failure = await (await conn.execute("SELECT state, failure FROM archive_run")).fetchall()
    assert failure == [("FAILED", "it was interrupted")]
    let_go(config.place)
    assert (await archive(spark, config, day_of(1))).manifest.rows == 3_000
