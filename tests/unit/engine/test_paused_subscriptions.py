"""What paused subscriptions want, and no other of the group, is told apart by the matcher."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from confdb.routes import ExpressionFailedError, SubscriptionRoute
from msgbroker.engine.matching import Matcher
from tests.support.lane_builders import FakeMessage, make_group, make_subscription, make_topic

QUEUE = 3


def sub(subscription_id: int, *arguments: Any, paused: bool = False, cost: int = 0) -> SubscriptionRoute:
    made = make_subscription(*arguments)
    return dataclasses.replace(made, subscription_id=subscription_id, paused=paused, cost=cost)


def is_hz(headers: dict[str, str]) -> bool:
    return headers["region"] == "hz"


def fails(headers: dict[str, str]) -> bool:
    raise ExpressionFailedError("headers.region", "no such key")


def matcher(*subscriptions: SubscriptionRoute) -> Matcher:
    return Matcher(make_group(*subscriptions), make_topic())


HZ, SH = FakeMessage(1, headers={"region": "hz"}), FakeMessage(1, headers={"region": "sh"})


@pytest.mark.parametrize(
    "subscriptions, hz, sh",
    [
        ([sub(1, "EC_PAID", paused=True)], "1", "1"),
        ([sub(1, "EC_SENT", paused=True)], "", ""),
        ([sub(1, "EC_PAID"), sub(2, "*", paused=True)], "", ""),
        ([sub(1, "*", is_hz), sub(2, "EC_PAID", paused=True)], "", "2"),
        ([sub(1, "*", is_hz, paused=True), sub(2, "EC_PAID", paused=True)], "1,2", "2"),
        ([sub(1, "*", None, {QUEUE: 2}, paused=True)], "", ""),
        ([sub(1, "*", fails, paused=True)], "", ""),
    ],
)
def test_a_message_is_shelved_by_those_that_want_it_where_no_other_does(
    subscriptions: list[SubscriptionRoute], hz: str, sh: str
) -> None:
    paused = matcher(*subscriptions)

    assert [paused.shelved_by(message, QUEUE) for message in (HZ, SH)] == [hz, sh]
    assert paused.select([HZ], QUEUE) == ([HZ] if not hz and any(not s.paused for s in subscriptions) else [])


def test_what_is_for_one_group_waits_for_no_subscription() -> None:
    paused = matcher(sub(1, "*", paused=True))

    assert paused.shelved_by(FakeMessage(1, target_group=7), QUEUE) == ""
    assert paused.paused_wanting(FakeMessage(1, target_group=8), QUEUE) == ""


@pytest.mark.parametrize(
    "shelved_by, standing",
    [("1", "1"), ("2", ""), ("3", None), ("1,2", ""), ("1,3", "1"), ("3,4", None), ("1,5", "1,5")],
)
def test_a_message_comes_from_the_shelf_when_one_that_wanted_it_goes_on(shelved_by: str, standing: str | None) -> None:
    now = matcher(sub(1, "EC_PAID", paused=True), sub(2, "EC_SENT"), sub(5, "EC_PAID", paused=True))

    assert now.standing_of(shelved_by) == standing


def test_a_matcher_says_who_is_paused_and_what_asking_for_them_costs() -> None:
    paused = [sub(1, "EC_PAID", paused=True, cost=10), sub(3, "*", is_hz, paused=True, cost=5)]
    some = matcher(*paused, sub(2, "*", cost=100))

    assert (some.paused_ids, some.paused_cost) == (frozenset({1, 3}), 15)
