"""The log as a stream: where it begins, how much a batch has, and when it ends loudly."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from msgbroker.contract.errors import OffsetGoneError, OtherHistoryError
from spark_etl.source.contract import SOURCES
from spark_etl.source.options import stream_options
from spark_etl.source.planning import ReadTask
from spark_etl.source.stream import StreamReader
from tests.support.message_rows import NOON, drop_day, put_rows, run_of

YESTERDAY = NOON - timedelta(days=1)


@pytest.fixture
def stored(database_url: str) -> str:
    """Return the URL of a store with two queues, one of them since yesterday."""
    put_rows(database_url, run_of(1, 20, stored_at=YESTERDAY))
    put_rows(database_url, run_of(1, 30, first=20))
    put_rows(database_url, run_of(2, 10))
    return database_url


def reader(url: str, **options: Any) -> StreamReader:
    """Return a reader as Spark would make it, and as it would hand it on."""
    given = {"url": url, **{name: str(value) for name, value in options.items()}}
    return StreamReader(stream_options(given), tuple(SOURCES["message"].schema.names))


def queues(offset: dict[str, Any]) -> dict[str, int]:
    """Return the offsets of the queues; what Spark keeps is JSON."""
    kept = json.loads(json.dumps(offset))
    assert kept == offset
    found: dict[str, int] = offset["queues"]
    return found


def read(stream: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int]]:
    """Return which messages the batch between two offsets has."""
    batches = [batch for task in stream.partitions(start, end) for batch in stream.read(task)]
    rows = [row for batch in batches for row in batch.select(["queue_id", "queue_offset"]).to_pylist()]
    return [(row["queue_id"], row["queue_offset"]) for row in rows]


def begin_another_history(url: str) -> None:
    """Note a new history, as a broker does after a promotion."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO log_history (history_id, timeline, epoch_floor)"
            " SELECT gen_random_uuid(), timeline, epoch_floor FROM log_history ORDER BY ordinal DESC LIMIT 1"
        )


@pytest.mark.parametrize(
    "start, begun",
    [
        ("earliest", {"1": 0, "2": 0}),
        ("latest", {"1": 50, "2": 10}),
        ((NOON + timedelta(seconds=4.5)).isoformat(), {"1": 25, "2": 5}),
        ((NOON + timedelta(seconds=4)).isoformat(), {"1": 24, "2": 4}),
        ((NOON - timedelta(hours=1)).isoformat(), {"1": 20, "2": 0}),
        ((NOON + timedelta(hours=1)).isoformat(), {"1": 50, "2": 10}),
    ],
)
def test_a_stream_begins_where_it_is_told_to(stored: str, start: str, begun: dict[str, int]) -> None:
    assert queues(reader(stored, start=start).initialOffset()) == begun


def test_a_stream_begins_where_the_log_does_after_a_day_was_dropped(stored: str) -> None:
    drop_day(stored, YESTERDAY, [(1, 20)])

    assert queues(reader(stored).initialOffset()) == {"1": 20, "2": 0}


def test_a_batch_has_no_more_messages_than_it_may_and_all_come_once(stored: str) -> None:
    stream = reader(stored, max_messages_per_batch=7)
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(7)
    start, seen, sizes = stream.initialOffset(), list[tuple[int, int]](), list[int]()

    while (end := stream.latestOffset(start, limit)) != start:
        batch = read(stream, start, end)
        seen, sizes, start = seen + batch, [*sizes, len(batch)], end

    assert sorted(seen) == [(1, n) for n in range(50)] + [(2, n) for n in range(10)]
    assert max(sizes) == 7
    assert len(sizes) == 9


def test_a_batch_has_about_the_bytes_that_it_may(database_url: str) -> None:
    put_rows(database_url, run_of(1, 40, body=b"x" * 10_000))
    stream = reader(database_url, max_bytes_per_batch=51_000)

    assert queues(stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())) == {"1": 5}


def test_a_message_that_is_larger_than_a_batch_is_read_all_the_same(database_url: str) -> None:
    put_rows(database_url, run_of(1, 2, body=b"x" * 10_000))
    stream = reader(database_url, max_bytes_per_batch=1)

    assert queues(stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())) == {"1": 1}


def test_all_that_is_available_is_read_at_once_where_spark_asks_for_it(stored: str) -> None:
    stream = reader(stored, max_messages_per_batch=7, max_bytes_per_batch=1)

    assert queues(stream.latestOffset(stream.initialOffset(), ReadAllAvailable())) == {"1": 50, "2": 10}


def test_a_stream_of_what_is_there_now_stops_there(stored: str) -> None:
    stream = reader(stored, max_messages_per_batch=40)
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    put_rows(stored, [*run_of(1, 5, first=50), *run_of(3, 5)])

    middle = stream.latestOffset(start, stream.getDefaultReadLimit())
    end = stream.latestOffset(middle, stream.getDefaultReadLimit())

    assert queues(end) == {"1": 50, "2": 10}
    assert stream.latestOffset(end, stream.getDefaultReadLimit()) == end
    assert queues(stream.reportLatestOffset()) == {"1": 55, "2": 10, "3": 5}


def test_a_queue_that_is_made_later_is_read_from_its_beginning(stored: str) -> None:
    stream = reader(stored, start="latest")
    start = stream.initialOffset()
    put_rows(stored, run_of(3, 5))

    end = stream.latestOffset(start, stream.getDefaultReadLimit())

    assert read(stream, start, end) == [(3, n) for n in range(5)]


def test_a_stream_whose_next_message_was_dropped_fails_with_queue_and_offsets(stored: str) -> None:
    stream = reader(stored)
    start, end = stream.initialOffset(), stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    drop_day(stored, YESTERDAY, [(1, 20)])

    with pytest.raises(OffsetGoneError) as raised:
        stream.latestOffset(start, stream.getDefaultReadLimit())
    with pytest.raises(OffsetGoneError):
        stream.partitions(start, end)

    facts = {"queue_id": 1, "queue_offset": 0, "start_offset": 20, "next_offset": 50}
    assert facts.items() <= raised.value.facts.items()


def test_a_new_queue_that_has_lost_messages_already_fails_the_stream(stored: str) -> None:
    stream = reader(stored, start="latest")
    start = stream.initialOffset()
    put_rows(stored, run_of(3, 5, stored_at=YESTERDAY))
    drop_day(stored, YESTERDAY, [(3, 5), (1, 20)])

    with pytest.raises(OffsetGoneError, match="queue 3 is to be read from 0, and has 5 to 5"):
        stream.latestOffset(start, stream.getDefaultReadLimit())


def test_messages_that_are_dropped_while_a_batch_is_read_are_an_error_and_no_fewer_rows(stored: str) -> None:
    stream = reader(stored)
    start = stream.initialOffset()
    tasks = stream.partitions(start, stream.latestOffset(start, stream.getDefaultReadLimit()))
    drop_day(stored, YESTERDAY, [(1, 20)])

    with pytest.raises(OffsetGoneError, match="queue 1 is to be read from 0, and has 20 to 50"):
        [batch for task in tasks for batch in stream.read(task)]


def test_a_stream_does_not_go_on_in_another_history(stored: str) -> None:
    stream = reader(stored)
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    begin_another_history(stored)

    with pytest.raises(OtherHistoryError):
        stream.latestOffset(start, stream.getDefaultReadLimit())
    with pytest.raises(OtherHistoryError):
        stream.partitions(start, end)


def test_a_stream_does_not_go_on_beyond_the_logs_end(stored: str) -> None:
    stream = reader(stored)
    start = stream.initialOffset()
    start["queues"]["1"] = 51

    with pytest.raises(OffsetGoneError, match="set back to an earlier moment"):
        stream.latestOffset(start, stream.getDefaultReadLimit())


def test_a_batch_is_read_by_several_tasks(stored: str) -> None:
    stream = reader(stored, partition_bytes=2_000)
    start = stream.initialOffset()
    tasks = stream.partitions(start, stream.latestOffset(start, stream.getDefaultReadLimit()))

    assert len(tasks) > 5
    assert all(isinstance(task, ReadTask) for task in tasks)
    assert stream.partitions(start, start) == []


# --- in Spark ---------------------------------------------------------------------------------------------------


def read_available(spark: SparkSession, url: str, directory: Path, **options: Any) -> list[int]:
    """Run a stream to the end of what is there, into files, and return how many rows its batches had."""
    log = spark.readStream.schema("queue_id long, queue_offset long").format("msgdb").options(url=url, **options).load()
    writer = log.writeStream.format("json").option("checkpointLocation", str(directory / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(directory / "rows"))
    query.awaitTermination(60)
    if (error := query.exception()) is not None:
        raise error
    return [progress["numInputRows"] for progress in query.recentProgress]


@pytest.mark.slow
def test_a_stream_goes_on_from_its_checkpoint(spark: SparkSession, stored: str, tmp_path: Path) -> None:
    assert read_available(spark, stored, tmp_path, max_messages_per_batch=25) == [25, 25, 10]
    put_rows(stored, [*run_of(1, 5, first=50), *run_of(3, 5)])
    assert read_available(spark, stored, tmp_path) == [10]

    rows = [tuple(row) for row in spark.read.json(str(tmp_path / "rows")).select("queue_id", "queue_offset").collect()]
    assert sorted(rows) == [(1, n) for n in range(55)] + [(2, n) for n in range(10)] + [(3, n) for n in range(5)]


@pytest.mark.slow
def test_a_stream_from_a_checkpoint_of_another_history_fails(spark: SparkSession, stored: str, tmp_path: Path) -> None:
    read_available(spark, stored, tmp_path)
    begin_another_history(stored)
    put_rows(stored, run_of(1, 5, first=50))

    with pytest.raises(Exception, match="a standby was promoted"):
        read_available(spark, stored, tmp_path)
