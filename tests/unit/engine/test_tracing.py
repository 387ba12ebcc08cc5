"""Which messages are traced: by their ids and their topic's rate, and by nothing else."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from msgbroker.engine.tracing import ALWAYS_TRACED, DRAWS, draw_of, draws_below, threshold_of
from msgdb import ids

RATES = st.floats(0.0, 1.0)
NUMBERS = st.integers(0, (1 << 108) - 1).map(lambda high: high << 20)
"""The first numbers of runs."""


def traced_of(number: int, count: int, rate: float) -> list[int]:
    """Return which places of a run are traced, one message after the other."""
    threshold = threshold_of(rate)
    return [place for place in range(count) if draw_of(ids.to_bytes(number + place)) < threshold]


def test_the_draw_of_an_id_never_changes_between_versions() -> None:
    # Written down, not computed: brokers of two versions must agree on what is traced.
    known = ["0190a5e1-7c00-7abc-8def-0123456789ab", "0190a5e1-7c00-7abc-8def-0123456789ac", "f" * 32]
    assert [draw_of(bytes.fromhex(each.replace("-", ""))) for each in known] == [526_297, 264_153, 524_287]


@example(1 << 60, 7, 200, 1.0)
@example(1 << 60, 7, 200, 0.25)
@example(1 << 60, 7, 200, 1 / DRAWS)
@given(NUMBERS, st.integers(0, 5_000), st.integers(0, 300), RATES)
def test_what_is_reckoned_of_a_run_is_what_each_of_its_messages_says(
    number: int, start: int, count: int, rate: float
) -> None:
    found = list(draws_below(threshold_of(rate), number + start, count))

    assert [place for place, _ in found] == traced_of(number + start, count, rate)
    assert all(draw == draw_of(ids.to_bytes(number + start + place)) for place, draw in found)


@given(NUMBERS, RATES, RATES)
def test_what_is_traced_at_a_rate_is_traced_at_every_higher_one(number: int, one: float, other: float) -> None:
    lower, higher = sorted((one, other))

    assert set(traced_of(number, 200, lower)) <= set(traced_of(number, 200, higher))


@given(NUMBERS)
def test_at_rate_0_nothing_is_traced_and_at_rate_1_all(number: int) -> None:
    assert traced_of(number, 50, 0.0) == []
    assert traced_of(number, 50, 1.0) == list(range(50))
    assert threshold_of(1.0) == DRAWS
    assert threshold_of(0.000_001) > ALWAYS_TRACED


# By how much of the first n counters, bits reversed, those below a share may be more or fewer than that share of n:
# log2(n) / 3 + 1. A run lies between two such beginnings, or is the end of all and a beginning.
MISSED_MAX = 2 * (math.log2(DRAWS) / 3 + 1)


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.3, 0.75])
@settings(max_examples=20)
@given(NUMBERS)
def test_of_a_long_run_the_share_is_the_rate(rate: float, number: int) -> None:
    traced = sum(1 for _ in draws_below(threshold_of(rate), number, 100_000))

    assert traced == pytest.approx(rate * 100_000, abs=MISSED_MAX)


@pytest.mark.parametrize("rate", [0.01, 0.3])
def test_of_messages_that_were_published_alone_the_share_is_the_rate_as_well(rate: float) -> None:
    chosen = random.Random(1)
    runs = [chosen.getrandbits(108) << 20 for _ in range(20_000)]

    traced = sum(len(traced_of(number, 1, rate)) for number in runs)

    assert traced == pytest.approx(rate * len(runs), rel=0.2)


def test_few_of_a_run_are_looked_at() -> None:
    looked_at = []

    class Number(int):
        def __add__(self, other: int) -> int:
            looked_at.append(other)
            return int(self) + other

    assert len(list(draws_below(threshold_of(0.01), Number(1 << 60), 10_000))) <= 105
    assert len(looked_at) <= 250
