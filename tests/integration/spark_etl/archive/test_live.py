"""The open day: batches of a stream, each with files and a manifest of its own, until the day is archived."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from msgdb.log.queues import ensure_queues
from msgdb.postgres.connections import Connection
from spark_etl.archive.config import ArchiveConfig
from spark_etl.archive.live import LiveConfig, run_live
from spark_etl.files.places import Place, list_batches
from spark_etl.files.reading import list_files, list_manifests
from tests.support.rows import make_queue, put_messages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

TODAY = datetime.now(UTC).date()


async def follow(spark: SparkSession, config: ArchiveConfig, **options: str) -> int:
    """Write what there is, and return how many rows that were."""
    written: list[int] = []
    live = LiveConfig(config.place, checkpoint=f"file://{config.place}/_live", is_once=True)
    query = run_live(spark, live, {"url": config.url, **options}, written.append)
    await asyncio.to_thread(query.awaitTermination)
    return sum(written)


def rows_of(config: ArchiveConfig, *days: Any) -> list[tuple[int, int]]:
    tables = [
        pq.read_table(file, columns=["queue_id", "queue_offset"]) for file in list_files(config.place, "message", *days)
    ]
    return sorted(tuple(row.values()) for table in tables for row in table.to_pylist())


def files_below(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


async def test_the_open_day_is_followed_and_each_message_is_there_once(
    spark: SparkSession, conn: Connection, config: ArchiveConfig
) -> None:
    queues = [queue.queue_id for queue in await ensure_queues(conn, 1, 1, 3)]
    await put_messages(conn, queues[0], range(5), days_ago=1)
    await put_messages(conn, queues[0], range(5, 105))
    await put_messages(conn, queues[1], range(50))
    assert await follow(spark, config, max_messages_per_batch="60") == 150
    first = rows_of(config, TODAY)
    await put_messages(conn, queues[2], range(7))
    await put_messages(conn, queues[1], range(50, 60))

    assert await follow(spark, config) == 17

    assert first == [(queues[0], offset) for offset in range(5, 105)] + [(queues[1], offset) for offset in range(50)]
    assert rows_of(config, TODAY) == sorted(
        [*first, *((queues[1], offset) for offset in range(50, 60)), *((queues[2], offset) for offset in range(7))]
    )
    numbers = [batch.number for batch in list_batches(Place.at(config.place), "message", TODAY)]
    assert len(numbers) >= 4
    assert numbers == list(range(len(numbers)))
    assert all(manifest.closed_at is None for manifest in list_manifests(config.place, "message", TODAY))


async def test_a_batch_of_two_days_is_a_manifest_for_each(
    spark: SparkSession, conn: Connection, config: ArchiveConfig
) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(10), days_ago=1)
    await put_messages(conn, queue_id, range(10, 30))

    await follow(spark, config, start="earliest")

    yesterday = TODAY - timedelta(days=1)
    assert rows_of(config, yesterday) == [(queue_id, offset) for offset in range(10)]
    assert rows_of(config, TODAY) == [(queue_id, offset) for offset in range(10, 30)]
    assert len(rows_of(config)) == 30


async def test_nothing_of_a_stream_says_how_the_store_is_reached(
    spark: SparkSession, conn: Connection, config: ArchiveConfig
) -> None:
    await put_messages(conn, await make_queue(conn), range(10))

    await follow(spark, config)

    kept = files_below(Path(config.place))
    assert len(kept) > 5
    assert [path for path in kept if config.url.encode() in kept[path]] == []
