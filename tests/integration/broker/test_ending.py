"""The loops of a broker end by themselves: none has to be cancelled where nothing hangs."""

from __future__ import annotations

import asyncio

from msgbroker.server.app import Broker

_SECONDS_MAX = 20.0


async def test_every_loop_of_a_broker_ends_by_itself_when_it_is_told_to_stop(broker: Broker) -> None:
    broker._stop.set()
    _, left = await asyncio.wait(broker._running, timeout=_SECONDS_MAX)

    assert [task.get_name() for task in left] == []
    assert [task.get_name() for task in broker._running if task.exception() is not None] == []
