"""Bodies of 4 MiB are archived in bounded memory, wherever in a queue they are."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest
from pyspark.sql import SparkSession

from msgdb.postgres.connections import Connection
from spark_etl.archive.config import ArchiveConfig
from spark_etl.archive.job import run
from tests.support.archives import day_of
from tests.support.rows import make_queue, put_messages
from tests.support.spark_workers import list_workers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

MIB = 1024 * 1024
_LOOK_SECONDS = 0.02


class Peak:
    """The most that one of Spark's workers in Python had at any moment."""

    resident_bytes = 0


@contextmanager
def watched_workers() -> Iterator[Peak]:
    peak, is_over = Peak(), threading.Event()

    def watch() -> None:
        while not is_over.wait(_LOOK_SECONDS):
            sizes = []
            for process in list_workers():
                with suppress(psutil.NoSuchProcess):
                    sizes.append(process.memory_info().rss)
            peak.resident_bytes = max(peak.resident_bytes, *sizes, 0)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield peak
    finally:
        is_over.set()
        watching.join()


async def test_bodies_of_4_mib_are_archived_in_less_than_1_gib(
    spark: SparkSession, conn: Connection, config: ArchiveConfig
) -> None:
    # Small ones are all that a sample of the queue sees: each file is taken for one of many rows.
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(3_200), days_ago=1)
    large = "queue_offset % 99 BETWEEN 1 AND 20 AND queue_offset < 1485"
    large_body = "UPDATE message SET body = convert_to(repeat(md5(queue_offset::text), 131072), 'UTF8') WHERE " + large
    assert (await conn.execute(large_body.encode())).rowcount == 300

    with watched_workers() as peak:
        done = await asyncio.to_thread(run, spark, config, day_of(1))

    assert done.manifest.rows == 3_200
    assert 0 < peak.resident_bytes < 1_024 * MIB, f"{peak.resident_bytes // MIB} MiB"
