"""What a replay takes: what meets its conditions and what a group asked for, and no copy for a single group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from confdb.routes import ExpressionFailedError, HeaderPredicate
from msgbroker.engine.selection import Fulfilled, Selection, Wish, selection_of
from msgdb.jobs.specs import AskedBefore, AskedFor, ReplaySpec


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as it is selected by."""

    queue_offset: int = 5
    event_code: str = "EC_PAID"
    key: str | None = "order-1"
    headers: dict[str, str] | None = field(default_factory=lambda: {"region": "hz", "amount": "7"})
    target_group: int | None = None
    queue_id: int = 3


def is_hz(headers: dict[str, str]) -> bool:
    return headers.get("region") == "hz"


def fails(headers: dict[str, str]) -> bool:
    raise ExpressionFailedError("headers.region", "no such key")


@pytest.mark.parametrize(
    "conditions, is_meant",
    [
        ({}, True),
        ({"event_code": "EC_PAID"}, True),
        ({"event_code": "EC_SENT"}, False),
        ({"key": "order-1"}, True),
        ({"key": "order-2"}, False),
        ({"headers": {"region": "hz"}}, True),
        ({"headers": {"region": "hz", "amount": "8"}}, False),
        ({"headers": {"colour": "red"}}, False),
        ({"wishes": []}, False),
        ({"wishes": [Wish("*", None)]}, True),
        ({"wishes": [Wish("EC_SENT", None)]}, False),
        ({"wishes": [Wish("EC_SENT", None), Wish("EC_PAID", is_hz)]}, True),
        ({"wishes": [Wish("*", lambda _: False)]}, False),
        # No match, as it is for a lane.
        ({"wishes": [Wish("*", fails)]}, False),
    ],
)
def test_a_message_is_meant_that_meets_every_condition(conditions: dict[str, Any], is_meant: bool) -> None:
    assert Selection(**conditions).takes(Stored()) is is_meant


def test_a_message_without_headers_has_none_to_meet() -> None:
    bare = Stored(headers=None, key=None)

    assert Selection().takes(bare)
    assert not Selection(headers={"region": "hz"}).takes(bare)
    assert not Selection(key="order-1").takes(bare)


def test_a_copy_for_one_group_is_not_meant() -> None:
    assert not Selection().takes(Stored(target_group=7))


@pytest.mark.parametrize(
    "starts, wish, is_meant",
    [
        ({3: 5}, Wish("EC_PAID", None), False),
        ({3: 6}, Wish("EC_PAID", None), True),
        # The queue is younger than the subscription.
        ({}, Wish("*", None), False),
        ({}, Wish("EC_SENT", None), True),
        ({}, Wish("*", fails), True),
    ],
)
def test_what_another_subscription_brought_already_is_not_meant(
    starts: dict[int, int], wish: Wish, is_meant: bool
) -> None:
    assert Selection(unless=[Fulfilled(wish, starts)]).takes(Stored()) is is_meant


def test_a_replay_selects_by_what_its_row_keeps() -> None:
    spec = ReplaySpec(
        group_id=7,
        history_id="h",
        event_code="EC_PAID",
        key="order-1",
        headers={"region": "hz"},
        asked=(AskedFor("*", "hz"), AskedFor("EC_SENT", None)),
        unless=(AskedBefore("EC_PAID", "never", {3: 0}),),
    )
    compiled: dict[str, HeaderPredicate] = {"hz": is_hz, "never": lambda _: False}

    selection = selection_of(ReplaySpec.of_json(spec.as_json()), compiled.__getitem__)

    assert selection.takes(Stored())
    assert not selection.takes(Stored(headers={"region": "sh"}))
    assert selection.unless[0].start_offsets == {3: 0}
    everything = selection_of(ReplaySpec(group_id=7, history_id="h"), compiled.__getitem__)
    assert everything == Selection(headers={})
