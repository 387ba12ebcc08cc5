"""What keeps a group from being empty, in sentences."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from msgconsole.operations.lanes.draining import QueueLeft, reasons_of
from tests.support.lane_builders import make_group, make_subscription

SERVED = QueueLeft("TP_TRADE", 1, 100, 0, 0, 0, None, None, is_served=True)
GROUP = make_group(dataclasses.replace(make_subscription("EC_REFUNDED"), paused=True), make_subscription())


def left(**changed: Any) -> QueueLeft:
    return dataclasses.replace(SERVED, **changed)


@pytest.mark.parametrize(
    "queues, said",
    [
        ([SERVED, left(is_served=False)], []),
        ([left(behind=3)], []),
        (
            [left(behind=3, is_served=False)],
            ["no broker serves these queues: is an instance of the group connected?"],
        ),
        (
            [left(behind=3, is_served=False), left(behind=1)],
            ["no broker serves 1 of these 2 queues: is an instance of the group connected?"],
        ),
        (
            [left(shelved=2), left(shelved=1)],
            ["3 messages wait for paused subscriptions (EC_REFUNDED)"],
        ),
        (
            [
                left(redeliveries=1, next_due_in_seconds=9.1, last_due_in_seconds=9.1),
                left(redeliveries=1_500, next_due_in_seconds=-2.0, last_due_in_seconds=7_200.0),
            ],
            ["1,501 messages wait for another attempt: the next is due in 0 s, the last in 7,200 s"],
        ),
        (
            [left(shelved=6_000, redeliveries=4_000, next_due_in_seconds=1.0, last_due_in_seconds=1.0)],
            [
                "6,000 messages wait for paused subscriptions (EC_REFUNDED)",
                "1 of these queues are read no further: as many messages wait there as may",
                "4,000 messages wait for another attempt: the next is due in 1 s, the last in 1 s",
            ],
        ),
    ],
)
def test_what_keeps_a_group_is_said(queues: list[QueueLeft], said: list[str]) -> None:
    assert reasons_of(GROUP, queues) == said


def test_a_paused_group_waits_to_be_resumed_as_long_as_there_is_something() -> None:
    paused = dataclasses.replace(GROUP, paused=True)

    assert reasons_of(paused, [SERVED]) == []
    assert reasons_of(paused, [left(behind=1)]) == ["the group is paused until it is resumed"]
