"""How many of something there were a second lately."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgbroker.server.rates import WINDOW_SECONDS, Rate


def test_what_comes_steadily_has_its_rate() -> None:
    rate = Rate(100.0)
    for tenth in range(1_000):
        rate.add(5, 100.0 + tenth / 10)

    assert rate.a_second(200.0) == pytest.approx(50.0, rel=0.01)


def test_what_began_a_moment_ago_is_not_made_more_of_than_it_is() -> None:
    rate = Rate(100.0)
    rate.add(7, 100.0)

    assert rate.a_second(100.001) == 7.0
    assert rate.a_second(102.0) == 3.5


def test_what_has_ended_is_forgotten() -> None:
    rate = Rate(0.0)
    rate.add(1_000, 1.0)

    assert rate.a_second(9.0) > 100
    assert 0 < rate.a_second(19.0) < 60
    assert rate.a_second(20.0) == 0.0
    assert rate.a_second(1e9) == 0.0


@given(st.lists(st.tuples(st.floats(0.01, 30.0), st.integers(0, 100)), max_size=40), st.floats(0.0, 30.0))
def test_a_rate_is_of_what_came_within_two_windows(steps: list[tuple[float, int]], rest: float) -> None:
    """No more than came in the time that it covers, and no less than came in the last window."""
    rate, now = Rate(0.0), 0.0
    came: list[tuple[float, int]] = []
    for seconds, count in steps:
        now += seconds
        rate.add(count, now)
        came.append((now, count))
    now += rest

    lately = sum(count for at, count in came if at > now - WINDOW_SECONDS)
    at_most = sum(count for at, count in came if at >= now - 2 * WINDOW_SECONDS)
    assert rate.a_second(now) * 2 * WINDOW_SECONDS + 1e-6 >= lately
    assert rate.a_second(now) * max(1.0, min(now, WINDOW_SECONDS)) <= at_most + 1e-6
