"""What Spark reads is what psycopg reads, and PostgreSQL filters as Spark would: for random rows and filters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from spark_etl.source.contract import SOURCES
from spark_etl.source.filters import Bounds, push
from tests.support.message_rows import COLUMNS, StoredMessage, put_rows, read_rows

pytestmark = pytest.mark.slow

# Clocks of New York go back an hour within it: at 6:00 in UTC it is 1:00 there for the second time.
BEGIN = datetime(2026, 10, 31, 22, tzinfo=UTC)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
SHORT = st.sampled_from(["", "a", "A", "a ", "it's", 'a"b', "back\\slash", "日本", "\U0001f600", "%", "null"])
TIMES = st.timedeltas(timedelta(0), timedelta(days=80_000)).map(lambda since: datetime(1970, 1, 2, tzinfo=UTC) + since)
INT2 = st.integers(-(1 << 15), (1 << 15) - 1)
MESSAGE = SOURCES["message"]
ZONES = st.sampled_from(["UTC", "America/New_York"])
EVERY_BYTE = bytes(range(256))
LARGE = EVERY_BYTE * 16_384
FEW = settings(
    max_examples=6, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate], deadline=None
)


NUMBERS = st.integers(-3, 12)
MOMENTS = st.sampled_from([0, 1, -1, 3_600_000_000, 14_400_000_000, 21_600_000_001, 90_000_000_000]).map(
    lambda microseconds: BEGIN + timedelta(microseconds=microseconds)
)
VALUES = {
    "queue_id": NUMBERS,
    "queue_offset": NUMBERS,
    "redrives": NUMBERS,
    "target_group": NUMBERS,
    "stored_at": MOMENTS,
    "topic": SHORT,
    "event_code": SHORT,
    "key": SHORT,
    "stress": st.booleans(),
}


@st.composite
def logs(
    draw: st.DrawFn,
    texts: st.SearchStrategy[str] = TEXTS,
    numbers: st.SearchStrategy[int] = INT2,
    least: int = 0,
) -> list[StoredMessage]:
    """Draw messages of two queues, each of one topic, over a night in which clocks go back; their times go up."""
    messages = []
    for queue_id in (1, 2):
        topic, stored_at, optional = draw(texts), BEGIN, st.none() | texts
        for queue_offset in range(draw(st.integers(least, 12))):
            stored_at += timedelta(microseconds=draw(st.sampled_from([0, 1, 999_999, 1_800_000_000, 3_600_000_001])))
            messages.append(
                StoredMessage(
                    queue_id=queue_id,
                    queue_offset=queue_offset,
                    stored_at=stored_at,
                    namespace="default",
                    topic=topic,
                    event_code=draw(texts),
                    key=draw(optional),
                    ordering_key=draw(optional),
                    headers=draw(st.none() | st.dictionaries(texts, texts, max_size=3)),
                    body=draw(st.binary(max_size=50) | st.just(EVERY_BYTE)),
                    born_at=draw(TIMES),
                    born_host=draw(optional),
                    publisher_group=draw(optional),
                    stress=draw(st.booleans()),
                    target_group=draw(st.none() | numbers),
                    redrives=draw(numbers),
                )
            )
    return messages


def load(spark: SparkSession, url: str) -> DataFrame:
    """Return the messages, in tasks of a few rows."""
    return spark.read.format("msgdb").options(url=url, partition_bytes="3000").load()


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows in the order of the log, times as microseconds since 1970: no zone comes in between."""
    of_times = {name: f.unix_micros(name).alias(name) for name in ("stored_at", "born_at")}
    found = frame.select(*(of_times.get(name, f.col(name)) for name in COLUMNS)).collect()
    return sorted((tuple(row) for row in found), key=lambda row: row[:2])


def stored_rows(url: str) -> list[tuple[Any, ...]]:
    """Return the same of what psycopg reads."""
    places = [COLUMNS.index(name) for name in ("stored_at", "born_at")]
    rows = []
    for row in read_rows(url):
        values: list[Any] = list(row)
        for place in places:
            values[place] = (values[place] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        rows.append(tuple(values))
    return rows


def empty(url: str) -> None:
    """Take all messages away, for the next example."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("TRUNCATE message")


def test_rows_are_the_same_as_psycopg_reads_them(spark: SparkSession, database_url: str) -> None:
    @FEW
    @given(logs(), ZONES)
    def check(messages: list[StoredMessage], zone: str) -> None:
        spark.conf.set("spark.sql.session.timeZone", zone)
        empty(database_url)
        put_rows(database_url, messages)
        assert rows_of(load(spark, database_url)) == stored_rows(database_url)

    check()


def test_a_body_of_four_mebibytes_with_every_byte_comes_as_it_is(spark: SparkSession, database_url: str) -> None:
    put_rows(database_url, [StoredMessage(queue_offset=n, body=LARGE[n:]) for n in range(12)])

    bodies = load(spark, database_url).select("queue_offset", f.sha2("body", 256), f.length("body")).collect()

    assert sorted(map(tuple, bodies)) == [(n, sha256(LARGE[n:]).hexdigest(), len(LARGE) - n) for n in range(12)]


COMPARISONS: list[tuple[Any, type[Filter]]] = [
    (Column.__eq__, EqualTo),
    (Column.__lt__, LessThan),
    (Column.__le__, LessThanOrEqual),
    (Column.__gt__, GreaterThan),
    (Column.__ge__, GreaterThanOrEqual),
    (Column.eqNullSafe, EqualNullSafe),
]


class Drawn(NamedTuple):
    """A filter as whoever reads writes it, and as Spark hands it over."""

    condition: Column
    given: Filter

    def __repr__(self) -> str:
        return str(self.given)


@st.composite
def filters(draw: st.DrawFn, name: str, values: st.SearchStrategy[Any]) -> Drawn:
    """Draw a filter on a column."""
    match draw(st.integers(0, 8)):
        case 0:
            listed = draw(st.lists(values | st.none(), min_size=1, max_size=3))
            drawn = Drawn(f.col(name).isin(listed), In((name,), tuple(listed)))
        case 1:
            drawn = Drawn(f.col(name).isNull(), IsNull((name,)))
        case 2:
            drawn = Drawn(f.col(name).isNotNull(), IsNotNull((name,)))
        case _:
            compare, kind = draw(st.sampled_from(COMPARISONS))
            value = draw(values)
            drawn = Drawn(compare(f.col(name), f.lit(value)), kind((name,), value))
    return Drawn(~drawn.condition, Not(drawn.given)) if draw(st.booleans()) else drawn


def any_filter() -> st.SearchStrategy[Drawn]:
    """Draw a column, and a filter on it."""
    return st.sampled_from(sorted(VALUES)).flatmap(lambda name: filters(name, VALUES[name]))


@st.composite
def logs_and_filters(draw: st.DrawFn) -> tuple[list[StoredMessage], list[Drawn]]:
    """Draw a log, and filters on each column, many of them with values that messages have."""
    messages = draw(logs(SHORT, NUMBERS, least=4))
    drawn = []
    for name, values in VALUES.items():
        present = {getattr(message, name) for message in messages} - {None}
        on_column = filters(name, st.sampled_from(sorted(present)) | values if present else values)
        drawn += [draw(on_column) for _ in range(20)]
    return messages, drawn


def test_a_condition_is_true_false_or_null_where_spark_says_so(spark: SparkSession, database_url: str) -> None:
    @settings(FEW, max_examples=3)
    @given(logs_and_filters())
    def check(drawn: tuple[list[StoredMessage], list[Drawn]]) -> None:
        messages, filters_drawn = drawn
        empty(database_url)
        put_rows(database_url, messages)
        taken = [(one, push(MESSAGE, [one.given])[0]) for one in filters_drawn]
        taken = [(one, pushed) for one, pushed in taken if pushed.all_conditions]
        # As columns, and not as filters, all of them are Spark's to evaluate, and in one go.
        columns = [one.condition.alias(f"c{place}") for place, (one, _) in enumerate(taken)]
        rows = load(spark, database_url).select("queue_id", "queue_offset", *columns).collect()
        with psycopg.connect(database_url) as connection:
            conditions = ", ".join(pushed.all_conditions[0] for _, pushed in taken)
            wanted = connection.execute(
                f"SELECT queue_id, queue_offset, {conditions} FROM message t".encode()
            ).fetchall()

        assert len(taken) > len(VALUES) * 5
        assert sorted(map(tuple, rows), key=lambda row: row[:2]) == sorted(wanted, key=lambda row: row[:2])
        times = {(each.queue_id, each.queue_offset): each.stored_at for each in messages}
        for row in rows:
            left = [pushed for place, (_, pushed) in enumerate(taken) if row[place + 2]]
            assert all(is_within(pushed.offsets, row.queue_offset) for pushed in left)
            assert all(is_within(pushed.times, times[row.queue_id, row.queue_offset]) for pushed in left)

    check()


def is_within(bounds: Bounds[Any], value: Any) -> bool:
    """Return whether a value is one of those that a plan goes by."""
    return (bounds.low is None or bounds.low <= value) and (bounds.high is None or value < bounds.high)


def test_filters_that_spark_pushes_leave_what_it_would_leave_itself(spark: SparkSession, database_url: str) -> None:
    @settings(FEW, max_examples=3)
    @given(logs(SHORT, NUMBERS), ZONES, st.lists(any_filter(), min_size=2, max_size=3))
    def check(messages: list[StoredMessage], zone: str, drawn: list[Drawn]) -> None:
        spark.conf.set("spark.sql.session.timeZone", zone)
        empty(database_url)
        put_rows(database_url, messages)
        columns = [each.condition.alias(str(n)) for n, each in enumerate(drawn)]
        evaluated = load(spark, database_url).select("queue_id", "queue_offset", *columns).collect()

        for place, each in enumerate(drawn):
            pushed = load(spark, database_url).where(each.condition).select("queue_id", "queue_offset").collect()
            wanted = sorted((row.queue_id, row.queue_offset) for row in evaluated if row[place + 2])
            assert sorted(map(tuple, pushed)) == wanted, each

    check()
