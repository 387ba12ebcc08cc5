"""Whose a day is while stores stop, and come back: who has lost it ends, and who has not goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from msgbroker.contract.errors import RunLostError
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from spark_etl.archive import job
from spark_etl.archive.config import ArchiveConfig
from spark_etl.archive.job import ArchivedDay
from tests.support.archiver import let_go, started_tasks, write_part_late
from tests.support.archives import archive, day_of, rows_of_archive, rows_of_store, state_of
from tests.support.eventually import eventually
from tests.support.own_postgres import OwnPostgres
from tests.support.rows import make_queue, put_messages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[OwnPostgres]:
    tmp_path.chmod(0o755)
    postgres = OwnPostgres.start(tmp_path / "postgres")
    yield postgres
    postgres.stop()


@pytest.fixture
async def own_conn(postgres: OwnPostgres) -> AsyncIterator[Connection]:
    async with MessageStore.open(postgres.url, pool_size=1) as store, store.connection() as conn:
        await put_messages(conn, await make_queue(conn), range(4_000), days_ago=1, body_bytes=2_000)
        yield conn


@pytest.fixture
def own_config(config: ArchiveConfig, postgres: OwnPostgres) -> ArchiveConfig:
    return replace(config, url=postgres.url)


async def begin(spark: SparkSession, config: ArchiveConfig) -> asyncio.Task[ArchivedDay]:
    """Begin to archive yesterday, as far as to the middle of writing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "write_part", write_part_late)
        running = asyncio.create_task(archive(spark, config, day_of(1)))
        # Both that run at a time: nothing is being read.
        await eventually(lambda: len(started_tasks(config.place)) == 2, 60, what="tasks that are in the middle")
    return running


async def test_a_run_that_could_not_renew_its_lease_in_time_ends_and_the_day_is_anothers(
    spark: SparkSession, own_conn: Connection, own_config: ArchiveConfig, postgres: OwnPostgres
) -> None:
    running = await begin(spark, replace(own_config, lease_seconds=1))
    frozen_at = time.monotonic()

    postgres.freeze()
    try:
        await eventually(lambda: time.monotonic() > frozen_at + 1.5)
    finally:
        postgres.thaw()

    with pytest.raises(RunLostError):
        await asyncio.wait_for(running, 20)
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == [], "what it had Spark do has ended"
    assert await state_of(own_conn, day_of(1)) == ("PENDING", ["RUNNING"])
    let_go(own_config.place)
    await archive(spark, own_config, day_of(1))
    assert await state_of(own_conn, day_of(1)) == ("ARCHIVED", ["LOST", "VERIFIED"])
    assert rows_of_archive(own_config, day_of(1)) == await rows_of_store(own_conn, day_of(1))


async def test_a_store_that_crashes_and_is_back_before_the_lease_has_passed_costs_no_run(
    spark: SparkSession, own_conn: Connection, own_config: ArchiveConfig, postgres: OwnPostgres
) -> None:
    running = await begin(spark, replace(own_config, lease_seconds=20))

    postgres.kill()
    postgres.start_again()
    let_go(own_config.place)

    done = await asyncio.wait_for(running, 60)
    assert done.manifest.rows == 4_000
    async with MessageStore.open(postgres.url, pool_size=1) as store, store.connection() as conn:
        assert await state_of(conn, day_of(1)) == ("ARCHIVED", ["VERIFIED"])
        assert rows_of_archive(own_config, day_of(1)) == await rows_of_store(conn, day_of(1))


async def test_days_are_archived_beside_each_other(
    spark: SparkSession, conn: Connection, config: ArchiveConfig
) -> None:
    queue_id, days = await make_queue(conn), (3, 2, 1)
    for number, days_ago in enumerate(days):
        offsets = range(1_000 * number, 1_000 * (number + 1))
        await put_messages(conn, queue_id, offsets, days_ago=days_ago, body_bytes=1_500)

    await asyncio.gather(*(archive(spark, config, day_of(days_ago)) for days_ago in days))

    for days_ago in days:
        assert rows_of_archive(config, day_of(days_ago)) == await rows_of_store(conn, day_of(days_ago))
        assert await state_of(conn, day_of(days_ago)) == ("ARCHIVED", ["VERIFIED"])
