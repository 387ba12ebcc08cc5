"""Reading from a replica, and what is archived again after a promotion that lost the log's end."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import psycopg
import pytest
from pyspark.sql import SparkSession

from msgbroker.contract.errors import ReplicaDiffersError
from msgdb.store import MessageStore
from spark_etl.archive.config import ArchiveConfig
from spark_etl.archive.progress import Progress, Step
from tests.support.archives import archive, day_of, rows_of_archive, rows_of_store, state_of
from tests.support.replicated_postgres import ReplicatedPostgres
from tests.support.rows import make_queue, put_messages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


async def test_a_replica_that_lags_is_waited_for_and_one_of_another_cluster_is_refused(
    spark: SparkSession, replicated: ReplicatedPostgres, config: ArchiveConfig, database_url: str
) -> None:
    standby_url = replicated.standby.url("center")
    own = replace(config, url=replicated.primary_url, replica_url=standby_url)
    is_waiting, told = asyncio.Event(), list[Step]()
    loop = asyncio.get_running_loop()

    def tell(progress: Progress) -> None:
        told.append(progress.step)
        if progress.step is Step.WAITING:
            loop.call_soon_threadsafe(is_waiting.set)

    async with MessageStore.open(own.url, pool_size=1) as store, store.connection() as conn:
        queue_id = await make_queue(conn)
        await put_messages(conn, queue_id, range(10), days_ago=1)
        with pytest.raises(ReplicaDiffersError):
            await archive(spark, replace(own, replica_url=database_url), day_of(1))
        replicated.wait_until_followed()
        with psycopg.connect(standby_url, autocommit=True) as standby:
            standby.execute("SELECT pg_wal_replay_pause()")
            await put_messages(conn, queue_id, range(10, 30), days_ago=1)
            running = asyncio.create_task(archive(spark, own, day_of(1), tell=tell))
            await is_waiting.wait()
            behind = standby.execute("SELECT count(*) FROM message").fetchone()
            standby.execute("SELECT pg_wal_replay_resume()")

        done = await running

        assert behind == (10,)
        assert told.index(Step.WAITING) < told.index(Step.WRITING)
        assert done.manifest.rows == 30
        assert rows_of_archive(own, day_of(1)) == await rows_of_store(conn, day_of(1))
        assert await state_of(conn, day_of(1)) == ("ARCHIVED", ["FAILED", "VERIFIED"])


async def test_what_a_promoted_server_has_is_archived_again_and_read_from_then_on(
    spark: SparkSession, replicated: ReplicatedPostgres, config: ArchiveConfig
) -> None:
    own = replace(config, url=replicated.url)
    async with MessageStore.open(own.url, pool_size=1) as store, store.connection() as conn:
        queue_id = await make_queue(conn)
        await put_messages(conn, queue_id, range(10), days_ago=1)
        replicated.wait_until_followed()
        replicated.take_standby_away()
        await put_messages(conn, queue_id, range(10, 15), days_ago=1)
        lost = await archive(spark, own, day_of(1))

    replicated.fail_over()

    async with MessageStore.open(own.url, pool_size=1) as store, store.connection() as conn:
        # The same offsets, given out again.
        await put_messages(conn, queue_id, range(10, 13), days_ago=1)
        assert await state_of(conn, day_of(1)) == ("", [])
        done = await archive(spark, own, day_of(1))
        assert done.manifest.run_id > lost.manifest.run_id
        assert done.manifest.timeline > lost.manifest.timeline
        assert rows_of_archive(own, day_of(1)) == await rows_of_store(conn, day_of(1))
        assert await state_of(conn, day_of(1)) == ("ARCHIVED", ["VERIFIED"])
