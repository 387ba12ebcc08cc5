"""Archiving on a cluster: workers die, and the run comes to its end; each machine has the same place before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from msgdb.postgres.connections import Connection
from spark_etl.archive.config import ArchiveConfig
from spark_etl.files.places import Place, find_manifest, run_directory
from tests.support.archiver import Archiver, let_go, started_tasks
from tests.support.archives import day_of, rows_of_archive, rows_of_store, state_of
from tests.support.eventually import eventually
from tests.support.rows import make_queue, put_messages
from tests.support.spark_cluster import SparkCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def tasks_alive(place: str) -> list[psutil.Process]:
    pids = {int(path.stem.rpartition("-")[2]) for path in started_tasks(place)}
    return [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]


def executor_of(process: psutil.Process) -> psutil.Process:
    return next(each for each in process.parents() if each.name() == "java")


async def test_a_run_outlives_the_processes_that_do_its_work(
    spark_cluster: SparkCluster, conn: Connection, config: ArchiveConfig, tmp_path: Path
) -> None:
    await put_messages(conn, await make_queue(conn), range(5_000), days_ago=1, body_bytes=1_000)
    log_file = tmp_path / "driver.log"
    driver = Archiver.start(config, day_of(1), "tasks that stay", log_file, spark_cluster)
    # At first what a task runs in, then all that a worker of the cluster has started.
    ends: list[Callable[[psutil.Process], psutil.Process]] = [lambda process: process, executor_of]
    try:
        for end in ends:
            alive = await eventually(partial(tasks_alive, config.place), 60, what="tasks in the middle")
            end(alive[0]).kill()
            alive[0].wait(30)
        let_go(config.place)

        assert await asyncio.to_thread(driver.outcome, 90) == "ARCHIVED", driver.logged.log
    finally:
        with suppress(psutil.NoSuchProcess):
            driver.logged.end()

    manifest = find_manifest(Place.at(config.place), "message", day_of(1))
    assert manifest is not None
    listed = {Path(file.path).name for file in manifest.files}
    there = set(Place.at(config.place).list_directory(run_directory("message", day_of(1), manifest.run_id)))
    assert {name for name in there - listed if name.endswith(".half")}, "what the dead have left is listed nowhere"
    assert rows_of_archive(config, day_of(1)) == await rows_of_store(conn, day_of(1))
    assert await state_of(conn, day_of(1)) == ("ARCHIVED", ["VERIFIED"])
