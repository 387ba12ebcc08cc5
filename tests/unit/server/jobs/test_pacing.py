"""How large the portions are in which a job does its work, and how evenly they come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgbroker.server.jobs.pacing import STEP_MESSAGES_MAX, Pace, step_messages
from msgdb.jobs.records import RATE_DEFAULT, RATE_MAX

RATES = st.floats(min_value=0.01, max_value=RATE_MAX)


@pytest.mark.parametrize(
    "rate, messages",
    [(0.5, 1), (100, 10), (500, 50), (RATE_DEFAULT, 50), (2_000, 50), (4_000, 100), (8_000, 200), (RATE_MAX, 200)],
)
def test_portions_are_small_unless_haste_was_asked_for(rate: float, messages: int) -> None:
    assert step_messages(rate) == messages


@given(RATES, RATES)
def test_a_higher_rate_never_makes_smaller_portions(rate: float, other: float) -> None:
    low, high = sorted((rate, other))
    assert 1 <= step_messages(low) <= step_messages(high) <= STEP_MESSAGES_MAX


@given(RATES, st.lists(st.floats(min_value=0, max_value=0.5), max_size=20))
def test_no_more_is_begun_than_the_rate_allows_however_long_the_steps_take(rate: float, taken: list[float]) -> None:
    now = began_at = 1_000.0
    pace, messages = Pace(now), 0
    for seconds in taken:
        now += pace.wait_seconds(now)
        assert messages <= rate * (now - began_at) + 1e-3
        pace.begin(now, step_messages(rate), rate)
        messages += step_messages(rate)
        now += seconds
