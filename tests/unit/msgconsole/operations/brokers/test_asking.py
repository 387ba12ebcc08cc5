"""Joining what brokers say: who is right where two of them own a lane by their own word."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from confdb.brokers import LiveBroker
from msgbroker.client.connect.inspection import MessagePlace, MessageStand
from msgbroker.contract.whereabouts import Stand
from msgconsole.operations.brokers import asking
from msgconsole.operations.brokers.asking import Answer, Asked, find_in_flight

PLACE = MessagePlace(1, 2, 3)
NOW = datetime.now(UTC)


def answer(address: str, *stands: MessageStand) -> Answer[list[MessageStand]]:
    broker = LiveBroker(
        broker_id=uuid4(),
        address=address,
        host="h",
        pid=1,
        snapshot_version=1,
        draining=False,
        groups={},
        process_version="1",
        started_at=NOW,
        heartbeat_at=NOW,
    )
    return Answer(broker, list(stands))


@pytest.mark.parametrize("is_turned", [False, True])
async def test_of_two_that_own_a_lane_the_higher_epoch_is_right(
    monkeypatch: pytest.MonkeyPatch, *, is_turned: bool
) -> None:
    answers = [
        answer("stale:1", MessageStand(Stand.IN_FLIGHT, epoch=4, attempt=1, instance_id="old")),
        answer("owner:1", MessageStand(Stand.READY, epoch=5, attempt=1)),
        answer("other:1", MessageStand(Stand.NOT_OWNED, epoch=0, attempt=0)),
    ]

    async def ask(*_: object, **__: object) -> Asked[list[MessageStand]]:
        return Asked(answers[::-1] if is_turned else answers, [])

    monkeypatch.setattr(asking, "ask_brokers", ask)
    stores: Any = None
    report = await find_in_flight(stores, [PLACE])

    assert (report.found[PLACE].broker, report.found[PLACE].stand.stand) == ("owner:1", Stand.READY)
