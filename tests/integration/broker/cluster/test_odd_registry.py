"""What another broker says of itself ends nobody, whatever it is."""

from __future__ import annotations

import uuid

import pytest

from msgbroker.server.app import Broker
from msgdb.store import MessageStore
from tests.support.eventually import eventually


@pytest.mark.parametrize("withheld", ["[" * 3_000 + "]" * 3_000, '{"1": [' + "9" * 5_000 + "]}"])
async def test_no_broker_ends_over_a_row_of_the_registry(
    broker: Broker, message_store: MessageStore, withheld: str
) -> None:
    async with message_store.connection() as conn:
        await conn.execute(
            "INSERT INTO broker (broker_id, address, host, pid, snapshot_version, withheld)"
            " VALUES (%s, 'b:1', 'b', 1, 1, %s::jsonb)",
            (uuid.uuid4(), withheld),
        )
    beaten_at = broker.cluster.heartbeats.beaten_at
    await eventually(
        lambda: broker.cluster.heartbeats.beaten_at > beaten_at or any(task.done() for task in broker._running)
    )
    ended = [repr(task.exception()) for task in broker._running if task.done()]
    broker._stop.set()
    assert not ended
