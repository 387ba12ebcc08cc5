"""A handler whose message type never arrives is told why."""

from __future__ import annotations

import dataclasses

import pytest

from confdb.routes import Snapshot
from msgbroker.engine.missing_types import MissingType, list_missing
from tests.support.broker_builders import snapshot
from tests.support.lane_builders import make_group, make_subscription, make_topic

TOPIC = make_topic()
GROUP = make_group(make_subscription("EC_PAID"))


def known(*, is_open: bool = False, withheld: frozenset[int] = frozenset()) -> Snapshot:
    made = snapshot(dataclasses.replace(TOPIC, is_open=is_open))
    return dataclasses.replace(made, withheld={GROUP.group_id: withheld})


@pytest.mark.parametrize(
    "handled, reason",
    [
        (("TP_1", "EC_PAID"), None),
        (("TP_1", "*"), None),
        (("TP_1", "EC_SENT"), "SUBSCRIPTION_NOT_FOUND"),
        (("TP_1", "EC_TYPO"), "EVENT_CODE_NOT_FOUND"),
        (("TP_TYPO", "EC_PAID"), "TOPIC_NOT_FOUND"),
    ],
)
def test_what_does_not_arrive_has_a_reason(handled: tuple[str, str], reason: str | None) -> None:
    missing = list_missing(known(), GROUP, [handled])

    assert missing == ([] if reason is None else [MissingType(*handled, reason)])


def test_any_code_of_an_open_topic_may_come() -> None:
    everything = make_group(make_subscription("*"))

    assert list_missing(known(is_open=True), everything, [("TP_1", "EC_TYPO")]) == []


def test_what_the_broker_does_not_understand_does_not_arrive() -> None:
    (missing,) = list_missing(known(withheld=frozenset({1})), GROUP, [("TP_1", "EC_PAID")])

    assert missing.reason == "NOT_UNDERSTOOD"


def test_who_subscribes_to_nothing_gets_nothing() -> None:
    (missing,) = list_missing(known(), make_group(), [("TP_1", "*")])

    assert missing.reason == "SUBSCRIPTION_NOT_FOUND"
