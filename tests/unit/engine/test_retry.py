"""The retry schedule."""

from __future__ import annotations

import pytest

from confdb.routes import GroupOrder
from msgbroker.contract.errors import KindNotSupportedError
from msgbroker.engine.lane.config import LaneConfig
from msgbroker.engine.retry import RetryPolicy


def test_each_attempt_waits_as_the_schedule_says_and_the_last_is_followed_by_none() -> None:
    policy = RetryPolicy((10.0, 30.0, 60.0), attempts_max=3)

    assert [policy.delay_after(attempt) for attempt in (1, 2, 3, 4)] == [10.0, 30.0, None, None]


def test_a_schedule_that_ends_before_the_maximum_ends_the_attempts() -> None:
    policy = RetryPolicy((10.0,), attempts_max=9)

    assert [policy.is_last(attempt) for attempt in (1, 2)] == [False, True]


def test_the_default_schedule_is_used_to_its_end() -> None:
    policy = RetryPolicy()

    assert (policy.delay_after(16), policy.delay_after(17)) == (7_200, None)


@pytest.mark.parametrize("order", [GroupOrder.KEY, GroupOrder.GLOBAL])
def test_an_order_that_is_not_carried_out_is_refused(order: GroupOrder) -> None:
    with pytest.raises(KindNotSupportedError):
        LaneConfig(order=order)
