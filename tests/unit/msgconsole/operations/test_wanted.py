"""What is asked for means one thing, whoever asks: what would mean two, or none, is refused."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from msgbroker.contract.errors import InvalidSettingError
from msgconsole.operations.replays.replay import WantedReplay
from msgconsole.operations.status.wanted import WantedStatus

ID = UUID(int=1)


@pytest.mark.parametrize(
    "named",
    [
        {},
        {"queue_id": 1},
        {"queue_offset": 0},
        {"message_id": ID, "queue_id": 1},
        {"message_id": ID, "queue_offset": 0},
        {"message_id": ID, "queue_id": 1, "queue_offset": 0},
    ],
)
def test_a_message_is_named_by_its_id_or_by_its_place(named: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettingError, match="by its id, or by its queue and offset"):
        WantedStatus(namespace="default", **named)


@pytest.mark.parametrize("named", [{"message_id": ID}, {"queue_id": 1, "queue_offset": 0}])
def test_a_message_that_is_named_once_may_be_asked_about(named: dict[str, Any]) -> None:
    assert WantedStatus(namespace="default", **named).asks_brokers


@pytest.mark.parametrize("condition", [{"topic": "TP"}, {"key": "order-1"}, {"headers": {"region": "hz"}}])
def test_of_messages_that_are_named_no_condition_leaves_any_out(condition: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettingError, match="no condition goes with them"):
        WantedReplay(namespace="default", group="SG", message_ids=(ID,), **condition)
