"""A day's whole way with real files: it stays until it is archived as it is, and readers have all of it then."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from msgdb.days.maintenance import Maintenance, MaintenanceConfig
from msgdb.log.partitions import detach_partition, list_partitions
from msgdb.names import MESSAGE
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from spark_etl.archive.config import ArchiveConfig
from spark_etl.archive.verify import verify
from tests.support.archive_rows import require_archive, state_of
from tests.support.archives import archive, day_of, rows_of_archive
from tests.support.rows import GROUP_NAMES, make_queue, put_messages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

DAYS_AGO = 8


async def maintain(store: MessageStore) -> bool:
    """Let a broker see to expired days, and tell whether this one waits."""
    report = await Maintenance(store, MaintenanceConfig(), group_names=lambda: GROUP_NAMES).maintain_once()
    assert report is not None
    assert report.failed == []
    return f"message_p{day_of(DAYS_AGO):%Y%m%d}" in report.waiting


def offsets_archived(config: ArchiveConfig) -> list[int]:
    return [row[1] for row in rows_of_archive(config, day_of(DAYS_AGO))]


async def test_nothing_is_dropped_that_readers_of_the_archive_do_not_have(
    spark: SparkSession, store: MessageStore, conn: Connection, config: ArchiveConfig
) -> None:
    day = day_of(DAYS_AGO)
    await require_archive(conn, MESSAGE)
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(10), days_ago=DAYS_AGO)
    assert await maintain(store)
    await archive(spark, config, day)
    # Whatever reaches it now.
    await put_messages(conn, queue_id, range(10, 12), days_ago=DAYS_AGO)
    assert await maintain(store)
    assert (await state_of(conn, MESSAGE, day))[0] == "PENDING"
    await archive(spark, config, day)

    assert not await maintain(store)

    assert await state_of(conn, MESSAGE, day) == ("DROPPED", None)
    assert offsets_archived(config) == list(range(12))
    # It comes back, twice.
    for first in (12, 15):
        await put_messages(conn, queue_id, range(first, first + 3), days_ago=DAYS_AGO)
        assert await maintain(store)
        await archive(spark, config, day)
        assert not await maintain(store)
        assert offsets_archived(config) == list(range(first + 3))
    verify(spark, config.place, day)


async def test_what_was_detached_already_is_archived_by_its_name_and_goes(
    spark: SparkSession, store: MessageStore, conn: Connection, config: ArchiveConfig
) -> None:
    day = day_of(DAYS_AGO)
    await require_archive(conn, MESSAGE)
    await put_messages(conn, await make_queue(conn), range(10), days_ago=DAYS_AGO)
    await maintain(store)
    (partition,) = [each for each in await list_partitions(conn, MESSAGE) if each.day == day]
    await detach_partition(conn, partition)
    assert await maintain(store)

    await archive(spark, config, day)

    assert not await maintain(store)
    assert (await state_of(conn, MESSAGE, day))[0] == "DROPPED"
    assert offsets_archived(config) == list(range(10))
