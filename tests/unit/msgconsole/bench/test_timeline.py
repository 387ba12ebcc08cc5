"""Rates from what workers reported."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgconsole.bench.measures.timeline import count_at, rate, reached_at, series

History = list[tuple[float, dict[str, int]]]


def counted(progress: dict[str, int]) -> float:
    return float(progress["n"])


def test_the_counts_of_several_workers_are_added_up_in_the_order_of_time() -> None:
    one: History = [(1.0, {"n": 10}), (3.0, {"n": 30})]
    other: History = [(2.0, {"n": 5})]
    assert series([one, other], counted) == [(1.0, 10), (2.0, 15), (3.0, 35)]


def test_between_two_reports_the_count_is_in_proportion() -> None:
    assert count_at([(0.0, 0.0), (10.0, 100.0)], 2.5) == 25


def test_before_the_first_report_there_was_nothing_and_after_the_last_all() -> None:
    points = [(1.0, 7.0), (2.0, 9.0)]
    assert (count_at(points, 0.5), count_at(points, 3.0)) == (0.0, 9.0)


def test_a_rate_is_what_came_between_two_moments() -> None:
    assert rate([(0.0, 0.0), (10.0, 1_000.0), (20.0, 1_500.0)], 10.0, 20.0) == 50


def test_no_time_has_no_rate() -> None:
    assert rate([(0.0, 0.0), (10.0, 1_000.0)], 5.0, 5.0) == 0


@pytest.mark.parametrize("count, at", [(0.0, 1.0), (10.0, 1.0), (15.0, 1.5), (20.0, 2.0), (21.0, None)])
def test_a_count_was_reached_at_a_moment_or_never(count: float, at: float | None) -> None:
    assert reached_at([(1.0, 10.0), (2.0, 20.0)], count) == at


@given(st.lists(st.tuples(st.floats(0.1, 9), st.floats(0.1, 9)), min_size=2, max_size=20), st.floats(0, 1))
def test_what_was_reached_at_a_moment_is_the_count_of_that_moment(
    steps: list[tuple[float, float]], share: float
) -> None:
    points = [(0.0, 0.0)]
    for seconds, count in steps:
        points.append((points[-1][0] + seconds, points[-1][1] + count))
    count = points[-1][1] * share
    at = reached_at(points, count)
    assert at is not None
    assert count_at(points, at) == pytest.approx(count)
