"""How long messages took, in classes: the same as if each of them were put into its class by itself."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgdb.figures.latency import BOUNDS_US, CLASSES, add_latencies, within_seconds

NOW_US = 1_000_000_000_000


@given(st.lists(st.integers(-5_000, 200_000_000_000), min_size=1, max_size=30))
def test_a_batch_is_put_into_the_classes_that_its_messages_belong_to(latencies_us: list[int]) -> None:
    classes = [0] * CLASSES
    each = [0] * CLASSES

    add_latencies(classes, sorted(NOW_US - latency_us for latency_us in latencies_us), NOW_US)
    for latency_us in latencies_us:
        each[bisect_left(BOUNDS_US, latency_us)] += 1

    assert classes == each


def test_what_came_back_in_another_order_is_counted_all_the_same() -> None:
    # A queue's times do not go back, but for a store that was set back.
    classes = [0] * CLASSES

    add_latencies(classes, [NOW_US - 1_000, NOW_US - 90_000_000, NOW_US - 2_000], NOW_US)

    assert sum(classes) == 3


@pytest.mark.parametrize(
    "latencies_us, share, seconds",
    [
        ([], 0.5, None),
        ([900], 0.5, 0.001),
        ([900] * 99 + [1_500_000], 0.5, 0.001),
        ([900] * 99 + [1_500_000], 0.99, 0.001),
        ([900] * 98 + [1_500_000] * 2, 0.99, 2.0),
        ([100_000_000_000], 0.5, None),
    ],
)
def test_a_share_of_them_took_no_longer_than_the_bound_of_its_class(
    latencies_us: list[int], share: float, seconds: float | None
) -> None:
    classes = [0] * CLASSES
    for latency_us in latencies_us:
        add_latencies(classes, [NOW_US - latency_us], NOW_US)

    assert within_seconds(classes, share) == seconds
