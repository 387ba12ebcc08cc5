"""Lanes that may have something to persist: taken once, however often they changed."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.server.deliver.checkpoints import Checkpointer
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.lanes.unpersisted import UnpersistedLanes
from msgbroker.server.log.cache import LogCache
from tests.support.broker_builders import board, lanes


def test_a_lane_is_taken_once_however_often_it_changed() -> None:
    unpersisted = UnpersistedLanes()
    one, two = lanes(1, 2)
    for owned in (one, two, one):
        unpersisted.add(owned)
    unpersisted.discard(two)

    assert unpersisted.wake.is_set()
    assert unpersisted.take() == {one}
    assert unpersisted.take() == set()


class Flushes(Checkpointer):
    """A checkpointer that only counts how often it is asked to flush; the store may be away."""

    def __init__(self, hub: DeliveryHub, *, is_away: bool = False) -> None:
        super().__init__(hub, None, UUID(int=1), interval_seconds=0.0)  # type: ignore[arg-type]
        self.flushes: asyncio.Queue[None] = asyncio.Queue()
        self.is_away = is_away

    async def flush_once(self) -> int:
        self.flushes.put_nowait(None)
        if self.is_away:
            raise StoreUnavailableError("away")
        return 0


@pytest.mark.parametrize("is_away", [False, True])
async def test_each_change_wakes_the_checkpointer_and_it_ends_when_it_is_stopped(is_away: bool) -> None:
    hub, stop = DeliveryHub(LogCache(None), board()), asyncio.Event()  # type: ignore[arg-type]
    checkpointer = Flushes(hub, is_away=is_away)
    running = asyncio.ensure_future(checkpointer.run(stop))
    for owned in lanes(1, 2, 3):
        hub.unpersisted.add(owned)
        await checkpointer.flushes.get()
        assert checkpointer.flushes.empty()
    stop.set()

    await running
