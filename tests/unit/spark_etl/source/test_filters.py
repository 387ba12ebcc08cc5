"""Which filters PostgreSQL evaluates, and what they leave of a table."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
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
    StringStartsWith,
)

from spark_etl.source.contract import SOURCES
from spark_etl.source.filters import Bounds, push

MESSAGE = SOURCES["message"]
TOPIC = ("topic",)
OFFSET = ("queue_offset",)
TIME = ("stored_at",)
NOON = datetime(2026, 11, 17, 12, tzinfo=UTC)
JUST_AFTER = datetime(2026, 11, 17, 12, 0, 0, 1, UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)


@pytest.mark.parametrize(
    "given, condition",
    [
        (EqualTo(("queue_id",), 7), "t.queue_id = 7"),
        (EqualNullSafe(("key",), "k"), "t.key IS NOT DISTINCT FROM convert_from('\\x6b'::bytea, 'UTF8')"),
        (EqualNullSafe(("key",), None), "t.key IS NOT DISTINCT FROM NULL"),
        (In(("redrives",), (1, None)), "t.redrives IN (1, NULL)"),
        (Not(In(("redrives",), (1, None))), "NOT (t.redrives IN (1, NULL))"),
        (GreaterThan(TIME, NOON), "t.stored_at > '2026-11-17 12:00:00+00:00'::timestamptz"),
        (EqualTo(("stress",), True), "t.stress = true"),
        (IsNull(("headers",)), "t.headers IS NULL"),
        (IsNotNull(("key",)), "t.key IS NOT NULL"),
    ],
)
def test_a_filter_that_is_understood_is_a_condition(given: Filter, condition: str) -> None:
    pushed, left = push(MESSAGE, [given])

    assert (pushed.all_conditions, left) == ((condition,), [])


@pytest.mark.parametrize(
    "given",
    [
        # Which of two texts is less depends on the database's collation, and how ids and documents are written on us.
        GreaterThan(TOPIC, "TP"),
        StringStartsWith(TOPIC, "TP"),
        EqualTo(("message_id",), "x"),
        EqualTo(("headers",), "{}"),
        EqualTo(("body",), b"x"),
        EqualTo(TOPIC, "a\0b"),
        EqualTo(("queue_id",), True),
        EqualTo(("queue_id",), 1.5),
        EqualTo(("queue_id", "inner"), 1),
        EqualTo(("nobody",), 1),
        EqualTo(TIME, datetime(2026, 11, 17)),  # noqa: DTZ001 - without a zone
        In(("queue_id",), ()),
        Not(StringStartsWith(TOPIC, "TP")),
    ],
)
def test_a_filter_that_is_not_goes_back_to_spark(given: Filter) -> None:
    pushed, left = push(MESSAGE, [given])

    assert pushed.all_conditions == ()
    assert left[0] is given


@pytest.mark.parametrize(
    "given, bounds",
    [
        ([EqualTo(OFFSET, 5)], Bounds(5, 6)),
        ([EqualNullSafe(OFFSET, 5)], Bounds(5, 6)),
        ([GreaterThan(OFFSET, 5), LessThanOrEqual(OFFSET, 9)], Bounds(6, 10)),
        ([GreaterThanOrEqual(OFFSET, 5), LessThan(OFFSET, 9), GreaterThan(OFFSET, 1)], Bounds(5, 9)),
        ([In(OFFSET, (8, 3, None))], Bounds(3, 9)),
        ([Not(EqualTo(OFFSET, 5))], Bounds()),
        ([EqualTo(("queue_id",), 5)], Bounds()),
    ],
)
def test_filters_on_offsets_bound_what_is_planned(given: list[Filter], bounds: Bounds[int]) -> None:
    assert push(MESSAGE, given)[0].offsets == bounds


@pytest.mark.parametrize(
    "given, bounds",
    [
        (EqualTo(TIME, NOON), Bounds(NOON, JUST_AFTER)),
        (GreaterThan(TIME, NOON), Bounds(JUST_AFTER, None)),
        (LessThanOrEqual(TIME, NOON), Bounds(None, JUST_AFTER)),
        (LessThanOrEqual(TIME, LAST), Bounds()),
    ],
)
def test_filters_on_times_bound_what_is_planned_to_the_microsecond(given: Filter, bounds: Bounds[Any]) -> None:
    assert push(MESSAGE, [given])[0].times == bounds
