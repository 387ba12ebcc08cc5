"""Tables of the store as DataFrames."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_etl.source.batch import pin_bounds
from tests.support.eventually import eventually_blocking
from tests.support.message_rows import NOON, StoredMessage, drop_day, put_rows, read_rows, run_of
from tests.support.replicated_postgres import ReplicatedPostgres

pytestmark = pytest.mark.slow
DAY = timedelta(days=1)
YESTERDAY = NOON - DAY


@pytest.fixture
def stored(database_url: str) -> str:
    """Return the URL of a store with two queues of two topics, yesterday and today."""
    put_rows(database_url, run_of(1, 20, stored_at=YESTERDAY))
    put_rows(database_url, run_of(1, 30, first=20))
    put_rows(database_url, [StoredMessage(queue_id=2, queue_offset=n, topic="TP_STOCK") for n in range(10)])
    return database_url


def load(spark: SparkSession, url: str, **options: Any) -> DataFrame:
    """Return a table as a DataFrame."""
    return spark.read.format("msgdb").options(url=url, **options).load()


def offsets(frame: DataFrame) -> list[tuple[int, int]]:
    """Return which messages a DataFrame has."""
    return sorted((row.queue_id, row.queue_offset) for row in frame.select("queue_id", "queue_offset").collect())


def test_every_message_is_there_as_it_is_stored(spark: SparkSession, stored: str) -> None:
    rows = load(spark, stored, partition_bytes=2_000).select("queue_id", "queue_offset", "message_id", "body").collect()

    wanted = [(row[0], row[1], row[3], row[10]) for row in read_rows(stored)]
    assert sorted(map(tuple, rows)) == wanted


def test_ranges_become_tasks_by_their_bytes(spark: SparkSession, stored: str) -> None:
    whole, cut = load(spark, stored), load(spark, stored, partition_bytes=2_000)

    assert whole.rdd.getNumPartitions() == 1
    assert cut.rdd.getNumPartitions() > 5
    assert offsets(cut) == offsets(whole)


def test_an_empty_store_is_no_rows(spark: SparkSession, database_url: str) -> None:
    assert load(spark, database_url).count() == 0


@pytest.mark.parametrize("table", ["cursor", "redelivery", "publisher_frame", "queue", "alarm", "archive_day", "act"])
def test_a_table_without_a_log_can_be_read(spark: SparkSession, stored: str, table: str) -> None:
    assert load(spark, stored, table=table).count() == (2 if table == "queue" else 0)


def test_dead_letters_are_read_by_the_day_on_which_they_died(spark: SparkSession, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO dead_letter (group_id, group_name, died_at, attempts, reason, queue_id, queue_offset,"
            " stored_at, message_id, namespace, topic, event_code, body, born_at, stress)"
            " SELECT 1, 'SG', %s - n * interval '1 day', 3, 'REJECTED', 1, n,"
            " now(), gen_random_uuid(), 'default', 'TP', 'EC', 'x', now(), false FROM generate_series(0, 9) n",
            (NOON,),
        )

    letters = load(spark, database_url, table="dead_letter")
    of_yesterday = load(spark, database_url, table="dead_letter", day=f"{YESTERDAY:%Y-%m-%d}")

    assert sorted(row.queue_offset for row in letters.collect()) == list(range(10))
    assert [row.queue_offset for row in of_yesterday.collect()] == [1]


def test_a_day_is_read_alone_and_several_together(spark: SparkSession, stored: str) -> None:
    yesterday, today = f"{YESTERDAY:%Y-%m-%d}", f"{NOON:%Y-%m-%d}"

    assert offsets(load(spark, stored, day=yesterday)) == [(1, n) for n in range(20)]
    assert load(spark, stored, day=today).count() == 40
    assert load(spark, stored, day=f"{yesterday}..{today}").count() == 60
    assert load(spark, stored, day="2020-01-01").count() == 0


def test_a_narrow_schema_reads_these_columns_alone(spark: SparkSession, stored: str) -> None:
    narrow = spark.read.schema("topic string, queue_offset long").format("msgdb").option("url", stored).load()

    assert sorted(map(tuple, narrow.where("topic = 'TP_STOCK'").collect())) == [("TP_STOCK", n) for n in range(10)]


@pytest.mark.parametrize(
    "schema, said",
    [
        ("queue_id int", "has queue_id as int; in message it is bigint"),
        ("queue_id long not null", "has queue_id as bigint not null"),
        ("password string", "has 'password', and message has no such column"),
    ],
)
def test_a_schema_that_is_not_the_contracts_is_refused(
    spark: SparkSession, stored: str, schema: str, said: str
) -> None:
    with pytest.raises(Exception, match=said):
        spark.read.schema(schema).format("msgdb").option("url", stored).load().collect()


def test_an_unknown_option_is_refused_with_a_sentence(spark: SparkSession, stored: str) -> None:
    with pytest.raises(Exception, match="tabel is no option of this data source"):
        load(spark, stored, tabel="message")


def test_a_filter_is_planned_again_and_pinned_bounds_give_the_same_rows(spark: SparkSession, stored: str) -> None:
    free = load(spark, stored).where("queue_offset >= 25")
    pinned = load(spark, stored, bounds=pin_bounds(stored)).where("queue_offset >= 25")
    assert (free.count(), pinned.count()) == (25, 25)

    put_rows(stored, [*run_of(1, 5, first=50), *run_of(3, 5)])

    assert (free.count(), pinned.count()) == (30, 25)


def test_bounds_are_pinned_to_days(spark: SparkSession, stored: str) -> None:
    bounds = pin_bounds(stored, day=f"{YESTERDAY:%Y-%m-%d}")

    assert offsets(load(spark, stored, bounds=bounds)) == [(1, n) for n in range(20)]


def test_pinned_bounds_whose_day_was_dropped_are_an_error_and_no_fewer_rows(spark: SparkSession, stored: str) -> None:
    pinned = load(spark, stored, bounds=pin_bounds(stored))

    drop_day(stored, YESTERDAY, [(1, 20)])

    with pytest.raises(Exception, match="queue 1 is to be read from 0, and has 20 to 50"):
        pinned.count()


def test_pinned_bounds_of_another_history_are_refused(spark: SparkSession, stored: str) -> None:
    pinned = load(spark, stored, bounds=pin_bounds(stored))
    with psycopg.connect(stored, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO log_history (history_id, timeline, epoch_floor)"
            " SELECT gen_random_uuid(), timeline, epoch_floor FROM log_history ORDER BY ordinal DESC LIMIT 1"
        )

    with pytest.raises(Exception, match="a standby was promoted"):
        pinned.count()


def test_a_day_that_is_dropped_after_the_plan_is_an_error_and_no_fewer_rows(spark: SparkSession, stored: str) -> None:
    planned = load(spark, stored)
    assert planned.count() == 60

    drop_day(stored, YESTERDAY, [(1, 20)])

    with pytest.raises(Exception, match="OffsetGoneError"):
        planned.count()


def test_a_stream_alone_has_a_start(spark: SparkSession, stored: str) -> None:
    with pytest.raises(Exception, match="start has a meaning for a stream alone"):
        load(spark, stored, start="latest").count()


# --- on a replica -----------------------------------------------------------------------------------------------


def test_a_replica_is_read_once_it_has_what_was_planned(spark: SparkSession, replicated: ReplicatedPostgres) -> None:
    put_rows(replicated.primary_url, run_of(1, 10))
    standby_url = replicated.standby.url("center")
    with psycopg.connect(standby_url, autocommit=True) as standby:
        standby.execute("SELECT pg_wal_replay_pause()")
        eventually_blocking(
            lambda: standby.execute("SELECT pg_get_wal_replay_pause_state() = 'paused'").fetchone() == (True,)
        )
        put_rows(replicated.primary_url, run_of(1, 10, first=10))

        options = {"replica_url": standby_url, "replica_wait_seconds": "0"}
        with pytest.raises(Exception, match="the replica was still behind after 0 s"):
            load(spark, replicated.primary_url, **options).count()
        standby.execute("SELECT pg_wal_replay_resume()")

    assert load(spark, replicated.primary_url, replica_url=standby_url).count() == 20


def test_what_is_no_replica_of_the_primary_is_refused(
    spark: SparkSession, replicated: ReplicatedPostgres, stored: str
) -> None:
    with pytest.raises(Exception, match="replica_url leads to a server that is no standby"):
        load(spark, replicated.primary_url, replica_url=replicated.primary_url).count()
    with pytest.raises(Exception, match="replica_url leads to another cluster"):
        load(spark, stored, replica_url=replicated.standby.url("center")).count()


def test_times_within_a_day_are_found_by_halves(spark: SparkSession, stored: str) -> None:
    midway = f"timestamp'{NOON + timedelta(seconds=9.5)}'"

    assert offsets(load(spark, stored, partition_bytes=2_000).where(f"stored_at > {midway} and queue_id = 1")) == [
        (1, n) for n in range(30, 50)
    ]
