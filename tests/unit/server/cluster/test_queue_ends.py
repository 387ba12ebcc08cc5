"""Where queues end: asked for soon where an end is in doubt, and never for what nobody reads here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from msgbroker.server.cluster.queue_ends import QueueEnds
from tests.support.eventually import eventually


class Hub:
    """A hub that reads queues 5 and 6; of 6 it is known that its end cannot be found now."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.cache = SimpleNamespace(refresh_ends=self.refresh_ends)

    async def refresh_ends(self, queue_ids: Sequence[int]) -> None:
        self.asked += queue_ids

    def queues_read(self) -> list[int]:
        return [5, 6]

    def is_end_set_aside(self, queue_id: int) -> bool:
        return queue_id == 6

    def end_not_found(self, queue_id: int, error: Exception) -> None:
        raise AssertionError(queue_id) from error

    def ends_found(self, queue_ids: Sequence[int]) -> None:
        """Nothing was set aside."""


def ends_of(hub: Any) -> QueueEnds:
    return QueueEnds(hub=hub, poll_seconds=lambda: 3_600.0)


async def test_all_queues_are_asked_for_that_are_read_here_and_can_be_looked_at() -> None:
    hub = Hub()
    await ends_of(hub).poll_once()

    assert hub.asked == [5]


async def test_an_end_in_doubt_is_asked_for_at_once_if_the_queue_is_read_here() -> None:
    hub = Hub()
    ends, stop = ends_of(hub), asyncio.Event()
    running = asyncio.ensure_future(ends.run_doubts(stop))
    ends.doubt(7)
    ends.doubt(5)
    await eventually(lambda: hub.asked == [5])

    stop.set()
    await running
    assert hub.asked == [5]


async def test_the_loops_end_by_themselves_though_nothing_happens() -> None:
    ends, stop = ends_of(Hub()), asyncio.Event()
    running = [asyncio.ensure_future(run(stop)) for run in (ends.run_doubts, ends.run_poll)]
    await asyncio.sleep(0)

    stop.set()
    await asyncio.gather(*running)
