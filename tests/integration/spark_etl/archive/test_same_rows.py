"""An archived day has the store's rows, whatever is in them, whoever reads them, and whatever time zone is around."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from spark_etl.archive.config import ArchiveConfig
from spark_etl.archive.verify import verify
from spark_etl.files.reading import list_files, read_days
from spark_etl.source.contract import SOURCES
from tests.support.archive_runs import bury, put_at
from tests.support.archives import archive, day_of, rows_of_archive, rows_of_store
from tests.support.odd_messages import put_odd_messages
from tests.support.rows import make_queue

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

# As bytes sort, which is not how a dictionary does: Z comes before a.
TOPICS = ["a/TP_B", "a/TP-B", "Z/TP_A", "a/TP_A"]


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this process be in New York."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.delenv("TZ")
    time.tzset()


def rows_by_pyarrow(config: ArchiveConfig, days_ago: int) -> list[tuple[Any, ...]]:
    files = list_files(config.place, "message", day_of(days_ago))
    tables = [pq.ParquetFile(file).read() for file in files]
    return [tuple(row.values()) for row in pa.concat_tables(tables).to_pylist()]


def rows_by_spark(spark: SparkSession, config: ArchiveConfig, days_ago: int) -> set[tuple[Any, ...]]:
    read = read_days(spark, config.place, "message", day_of(days_ago))
    # As text: Python has no time as early as Spark has.
    read = read.selectExpr(*(f"unix_micros({name})" if name.endswith("_at") else name for name in read.columns))
    return {tuple(bytes(each) if isinstance(each, bytearray) else each for each in row) for row in read.collect()}


def with_micros(rows: list[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    epoch, micro = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
    return {tuple((each - epoch) // micro if isinstance(each, datetime) else each for each in row) for row in rows}


async def test_whatever_is_in_a_row_is_in_the_archive_for_every_reader(
    spark: SparkSession, conn: Connection, config: ArchiveConfig
) -> None:
    await put_odd_messages(conn, day_of(1), 7, topics=TOPICS, count=300)

    done = await archive(spark, config, day_of(1))

    wanted = await rows_of_store(conn, day_of(1))
    assert len(wanted) == done.manifest.rows == 2_400
    assert len(done.manifest.files) > 3
    assert rows_of_archive(config, day_of(1)) == wanted
    assert rows_by_pyarrow(config, 1) == wanted
    assert rows_by_spark(spark, config, 1) == with_micros(wanted)
    assert sorted({topic for file in done.manifest.files for topic in file.topics}) == sorted(TOPICS)
    keys = [row[SOURCES["message"].schema.get_field_index("key")] for row in wanted]
    assert min(file.key.min or "" for file in done.manifest.files) == min(key for key in keys if key is not None)
    verify(spark, config.place, day_of(1))


@pytest.mark.usefixtures("new_york")
async def test_a_day_is_one_in_utc_wherever_server_and_job_are(
    spark: SparkSession, store: MessageStore, conn: Connection, config: ArchiveConfig
) -> None:
    name = sql.Identifier(conn.info.dbname)
    await conn.execute(sql.SQL("ALTER DATABASE {} SET timezone TO 'America/New_York'").format(name))
    day = day_of(1)
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    end = midnight + timedelta(days=1)
    edges = [midnight - timedelta(microseconds=1), midnight, end - timedelta(microseconds=1), end]
    async with MessageStore.open(config.url, pool_size=1) as elsewhere, elsewhere.connection() as conn_there:
        shown = await (await conn_there.execute("SHOW timezone")).fetchone()
        queue_id = await make_queue(conn_there)
        for offset, at in enumerate(edges):
            await put_at(conn_there, queue_id, range(offset, offset + 1), at)
        await bury(conn_there, *edges)

    messages = await archive(spark, config, day)
    dead_letters = await archive(spark, config, day, table="dead_letter")

    assert shown == ("America/New_York",)
    assert (messages.manifest.rows, dead_letters.manifest.rows) == (2, 2)
    assert [row[1:3] for row in rows_by_pyarrow(config, 1)] == [(1, edges[1]), (2, edges[2])]
    (file,) = messages.manifest.files
    assert (file.time.min, file.time.max) == (edges[1].isoformat(), edges[2].isoformat())
    read = read_days(spark, config.place, "dead_letter", day).selectExpr("unix_micros(died_at)").collect()
    assert {(row[0],) for row in read} == with_micros([(edges[1],), (edges[2],)])
    verify(spark, config.place, day)


async def test_a_day_on_which_clocks_were_put_back_has_all_of_its_hours_once(
    spark: SparkSession, conn: Connection, config: ArchiveConfig
) -> None:
    name = sql.Identifier(conn.info.dbname)
    await conn.execute(sql.SQL("ALTER DATABASE {} SET timezone TO 'America/New_York'").format(name))
    # At 06:00 in UTC it is 01:00 there for the second time.
    back = datetime(2025, 11, 2, tzinfo=UTC)
    async with MessageStore.open(config.url, pool_size=1) as elsewhere, elsewhere.connection() as conn_there:
        queue_id = await make_queue(conn_there)
        for hour in range(24):
            await put_at(conn_there, queue_id, range(hour, hour + 1), back + timedelta(hours=hour, minutes=30))
        await bury(conn_there, *(back + timedelta(hours=hour) for hour in range(-1, 26)))

    done = await archive(spark, config, back.date())
    dead_letters = await archive(spark, config, back.date(), table="dead_letter")

    assert (done.manifest.rows, dead_letters.manifest.rows) == (24, 24)
    rows = rows_of_archive(config, back.date())
    assert [row[2] for row in rows] == [back + timedelta(hours=hour, minutes=30) for hour in range(24)]
