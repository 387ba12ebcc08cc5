"""Claims: which lanes a broker asks for, and when it may not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from confdb.routes import Snapshot
from msgbroker.server import clock
from msgbroker.server.alarms.set_aside import SetAside
from msgbroker.server.cluster import claims
from msgbroker.server.cluster.claims import LaneClaims
from msgbroker.server.cluster.lease_terms import LeaseTerms
from msgbroker.server.deliver.lanes.work import LaneWork, Work
from msgdb.lanes.records import ClaimedLane, LaneKey, LaneToClaim
from msgdb.postgres.history import History
from msgdb.reports.alarms import Alarm, AlarmKind
from tests.support.broker_builders import board

GROUP, TOPIC = 7, 1
LEASE_SECONDS = 8.0


class Group:
    """A group that serves these queues."""

    def __init__(self, *queue_ids: int) -> None:
        self.route = SimpleNamespace(group_id=GROUP, subscriptions=())
        self.lanes: dict[int, Any] = dict.fromkeys(queue_ids)


class Store:
    """A store that notes which queues are asked for, and grants none."""

    def __init__(self) -> None:
        self.history = History(UUID(int=1), epoch_floor=0, age_seconds=3_600.0)
        self.asked: list[int] = []
        self.epoch_floors: list[int] = []

    @asynccontextmanager
    async def transaction_in(self, history: History) -> AsyncIterator[Store]:
        assert history is self.history
        yield self

    async def claim(
        self, _: object, __: UUID, lanes: Iterable[LaneToClaim], ___: float, *, epoch_floor: int, config_version: int
    ) -> list[ClaimedLane]:
        self.asked += [lane.key.queue_id for lane in lanes]
        self.epoch_floors.append(epoch_floor)
        return []


class World:
    """A broker's claims, and what they stand on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(clock, "now", lambda: self.now)
        self.store = Store()
        monkeypatch.setattr(claims, "claim", self.store.claim)
        self.aside: SetAside[LaneWork] = SetAside(board(), lambda _: Alarm(AlarmKind.LANE_SET_ASIDE, "a lane", ""))
        self.group = Group()
        self.claims = LaneClaims(
            store=self.store,  # type: ignore[arg-type]
            broker_id=UUID(int=1),
            hub=SimpleNamespace(aside=self.aside),  # type: ignore[arg-type]
            snapshot=lambda: Snapshot(1),
            cut_off=None,  # type: ignore[arg-type]
            recovery=None,  # type: ignore[arg-type]
            terms=LeaseTerms(LEASE_SECONDS),
        )

    async def asked_for(self, *queue_ids: int) -> list[int]:
        """Return which of the wanted queues the store is asked for."""
        self.store.asked.clear()
        topic: Any = SimpleNamespace(topic_id=TOPIC)
        wanted: Any = {self.group: dict.fromkeys(queue_ids, topic)}
        await self.claims.claim_missing(wanted)
        return sorted(self.store.asked)

    def go_on_with_another_history(self, *kept: int) -> None:
        self.store.history = History(UUID(int=2), epoch_floor=100, age_seconds=1.0)
        self.claims.follow_history(self.store.history, {LaneKey(GROUP, "", queue_id) for queue_id in kept})


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def test_what_is_served_already_is_not_claimed_again(world: World) -> None:
    world.group = Group(11)

    assert await world.asked_for(11, 12) == [12]


async def test_in_another_history_only_what_was_served_until_then_is_claimed_while_old_leases_run(world: World) -> None:
    world.go_on_with_another_history(12)
    world.now += LEASE_SECONDS - 1.1
    assert await world.asked_for(11, 12) == [12]

    # It was met a second before this broker heard of it.
    world.now += 0.2
    assert await world.asked_for(11, 12) == [11, 12]


async def test_epochs_go_on_above_all_that_another_history_can_have_given_out(world: World) -> None:
    await world.asked_for(11)
    world.go_on_with_another_history(11)
    await world.asked_for(11)

    assert world.store.epoch_floors == [0, 100]


async def test_a_lane_that_failed_a_moment_ago_is_left_alone_for_now(world: World) -> None:
    world.aside.failed(LaneWork(LaneKey(GROUP, "", 11), Work.SERVING), ValueError("odd"))

    assert await world.asked_for(11, 12) == [12]
