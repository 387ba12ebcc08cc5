"""What a task reads is all that was planned, or an error: a day may be dropped meanwhile."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from pyspark.sql.datasource import EqualTo, Filter, InputPartition

from msgbroker.contract.errors import DatabaseRefusedError, OffsetGoneError
from spark_etl.source.batch import BatchReader
from spark_etl.source.options import batch_options
from tests.support.message_rows import NOON, drop_day, put_rows, run_of

YESTERDAY = NOON - timedelta(days=1)
OF_TRADE = EqualTo(("topic",), "TP_TRADE")
OF_KEY = EqualTo(("key",), "order-1")


@pytest.fixture
def stored(database_url: str) -> str:
    """Return the URL of a store with a queue of yesterday and today."""
    put_rows(database_url, [*run_of(1, 20, stored_at=YESTERDAY), *run_of(1, 30, first=20)])
    return database_url


def reader(url: str, *filters: Filter) -> BatchReader:
    """Return a reader that PostgreSQL evaluates the filters for."""
    made = BatchReader(batch_options({"url": url}), ("queue_offset",))
    assert list(made.pushFilters(list(filters))) == []
    return made


def offsets(read_by: BatchReader, tasks: list[InputPartition]) -> list[int]:
    return [offset for task in tasks for batch in read_by.read(task) for offset in batch.column(0).to_pylist()]


@pytest.mark.parametrize("filters", [(), (OF_TRADE,), (OF_KEY,)], ids=["all", "some", "none"])
def test_a_day_that_is_dropped_before_it_is_read_is_an_error_with_filters_as_without(
    stored: str, filters: tuple[Filter, ...]
) -> None:
    read_by = reader(stored, *filters)
    tasks = read_by.partitions()

    drop_day(stored, YESTERDAY, [(1, 20)])

    with pytest.raises(OffsetGoneError, match="queue 1 is to be read from 0, and has 20 to 20"):
        offsets(read_by, tasks)


def test_a_partition_that_is_named_by_no_day_is_an_error_that_names_it(stored: str) -> None:
    with psycopg.connect(stored) as connection:
        connection.execute(
            "CREATE TABLE message_archived PARTITION OF message FOR VALUES FROM ('1999-01-01') TO ('1999-01-02')"
        )

    with pytest.raises(DatabaseRefusedError, match="message_archived"):
        reader(stored).partitions()


def test_what_filters_leave_out_is_not_missed(stored: str) -> None:
    read_by = reader(stored, OF_KEY)

    assert offsets(read_by, read_by.partitions()) == []


def test_what_was_dropped_before_the_plan_is_not_missed(stored: str) -> None:
    drop_day(stored, YESTERDAY, [(1, 20)])
    some, none = reader(stored, OF_TRADE), reader(stored, OF_KEY)

    assert offsets(some, some.partitions()) == list(range(20, 50))
    assert offsets(none, none.partitions()) == []
