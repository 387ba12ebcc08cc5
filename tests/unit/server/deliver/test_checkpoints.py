"""Persisting what lanes settled: how much of it at a time, and what of that the event loop does."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from msgbroker.server.deliver import checkpoints
from msgbroker.server.deliver.checkpoints import Checkpointer
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.log.cache import LogCache
from msgdb.lanes.checkpoints import Checkpointed, PreparedCheckpoints, prepare
from msgdb.lanes.records import ClaimedLane, LaneCheckpoint, LaneKey
from tests.support.broker_builders import board, group_route, route, snapshot

LANES = 12
EVERY_OTHER = [(offset, offset + 1) for offset in range(2, 10_000, 2)]
"""As many ranges as a lane may have."""


class Store:
    """A store whose transactions write nothing."""

    history = object()

    @asynccontextmanager
    async def transaction_in(self, history: object) -> AsyncIterator[None]:
        yield None


async def test_ranges_of_many_lanes_are_put_together_beside_the_event_loop_and_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = DeliveryHub(LogCache(None), board())  # type: ignore[arg-type]
    monkeypatch.setattr(hub.pump, "mark", lambda _: None)
    hub.follow(snapshot(route()))
    group = hub.attach(group_route(), Instance("one", 100, 1_000_000))
    for queue_id in range(1, LANES + 1):
        hub.open_lane(group, route(), ClaimedLane(LaneKey(1, "", queue_id), 1, 0, EVERY_OTHER), (), 1e9)
        owned = group.lanes[queue_id]
        owned.lane.feed(0, 1, ())
        hub.unpersisted.add(owned)
    here = threading.get_ident()
    put_together: list[tuple[bool, int]] = []

    def noted(marks: Sequence[LaneCheckpoint], names: Mapping[int, str]) -> PreparedCheckpoints:
        put_together.append((threading.get_ident() == here, sum(len(mark.acked_ranges) for mark in marks)))
        return prepare(marks, names)

    async def written(_: Any, __: UUID, prepared: PreparedCheckpoints) -> Checkpointed:
        return Checkpointed({mark.key for mark in prepared.checkpoints}, set())

    monkeypatch.setattr(checkpoints, "prepare", noted)
    monkeypatch.setattr(checkpoints, "checkpoint", written)

    assert await Checkpointer(hub, Store(), UUID(int=1)).flush_once() == LANES  # type: ignore[arg-type]
    assert sum(count for _, count in put_together) == LANES * len(EVERY_OTHER)
    assert not any(is_here for is_here, _ in put_together)
    assert max(count for _, count in put_together) < 4 * len(EVERY_OTHER)
