"""Lanes with as much to persist, and to load, as they may have: in bounded steps, and the event loop goes on."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from uuid import UUID

import pytest

from confdb.routes import GroupMode, GroupOrder, GroupRoute
from msgbroker.engine.verdicts import Held, Settlement, Verdict
from msgbroker.server.app import tune_collector
from msgbroker.server.cluster.recovery import LaneRecovery
from msgbroker.server.deliver import checkpoints
from msgbroker.server.deliver.checkpoints import CHANGES_MAX, Checkpointer
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.log.cache import LogCache
from msgdb.lanes import checkpoints as lane_checkpoints
from msgdb.lanes.checkpoints import PreparedCheckpoints
from msgdb.lanes.leases import claim
from msgdb.lanes.records import LaneToClaim
from msgdb.store import MessageStore, SessionLimits
from tests.support.broker_builders import board, log_message, route, snapshot
from tests.support.loop_probe import probed_loop

OWNER = UUID(int=1)
LANES = 20
EACH = 10_000
HELD_SECONDS_MAX = 0.1
"""Twice what it may be on a machine that has nothing else to do."""


def group_route() -> GroupRoute:
    return GroupRoute(
        1, "default", "SG_POINTS", 60.0, (10.0,) * 5, 6, 10_000, GroupOrder.NONE, GroupMode.SHARED, paused=False,
        subscriptions=(),
    )  # fmt: skip


@dataclass(slots=True)
class Scene:
    """A hub with lanes of a real store, and what keeps them."""

    store: MessageStore
    hub: DeliveryHub
    opening: LaneRecovery
    checkpointer: Checkpointer

    async def claim(self) -> int:
        """Claim all lanes and open them; return how many were opened."""
        self.hub.attach(group_route(), Instance("one", EACH, 1 << 30))
        (group,) = self.hub.groups.values()
        wanted = {group: {queue_id: route() for queue_id in range(1, LANES + 1)}}
        lanes = [LaneToClaim(1, "", queue_id, 0) for queue_id in wanted[group]]
        async with self.store.transaction() as connection:
            claimed = await claim(connection, OWNER, lanes, 60.0)
        return await self.opening.open(claimed, wanted, 1e12, self.store.history)

    def fail_all(self) -> None:
        """Let every message of a full window fail once."""
        for owned in [owned for _, owned in self.hub.lanes()]:
            lane = owned.lane
            first = lane.next_offset
            lane.feed(first, first + EACH, [log_message(first + number) for number in range(EACH)])
            assert lane.take("one", EACH, 1 << 40, 0.0).count == EACH
            held = Held(lane.key.queue_id, lane.epoch, 1, [(first, first + EACH)])
            assert lane.settle("one", Settlement(held, Verdict.RETRY, error="it failed"), 0.0).count == EACH
            self.hub.unpersisted.add(owned)


def make_scene(store: MessageStore) -> Scene:
    hub = DeliveryHub(LogCache(store), board())
    hub.pump.mark = lambda group: None  # type: ignore[method-assign]
    hub.follow(snapshot(route()))
    return Scene(store, hub, LaneRecovery(store=store, broker_id=OWNER, hub=hub), Checkpointer(hub, store, OWNER))


@pytest.fixture
def collector() -> Iterator[None]:
    """Let the cycle collector look as seldom as in a broker: it holds the loop, too."""
    before = gc.get_threshold()
    tune_collector()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.fixture
async def scene(database_url: str) -> AsyncIterator[Scene]:
    async with MessageStore.open(database_url, limits=SessionLimits()) as store:
        await store.follow_history()
        yield make_scene(store)


async def redelivery_count(store: MessageStore) -> int:
    async with store.connection() as conn:
        row = await (await conn.execute("SELECT count(*) FROM redelivery")).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.usefixtures("collector")
async def test_much_is_persisted_and_loaded_in_steps_that_leave_the_event_loop_alone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    write = lane_checkpoints.checkpoint

    async def counted(connection: object, owner: UUID, prepared: PreparedCheckpoints) -> object:
        sizes.append(sum(mark.change_count for mark in prepared.checkpoints))
        return await write(connection, owner, prepared)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoints, "checkpoint", counted)
    assert await scene.claim() == LANES
    scene.fail_all()
    async with probed_loop() as probe:
        assert await scene.checkpointer.flush_once() == LANES
    assert await redelivery_count(scene.store) == sum(sizes) == LANES * EACH
    # A lane is one transaction at least, and so much of several at most.
    assert max(sizes) == EACH
    assert probe.held_seconds_max < HELD_SECONDS_MAX

    heir = make_scene(scene.store)
    async with probed_loop() as probe:
        opened = 0
        for _ in range(LANES):
            opened = max(opened, await heir.claim())
            if opened == LANES:
                break
    lanes = [owned for _, owned in heir.hub.lanes()]
    assert sum(owned.lane.redelivery_count for owned in lanes) == len(lanes) * EACH
    assert probe.held_seconds_max < HELD_SECONDS_MAX


async def test_many_lanes_with_little_share_transactions(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    lanes: list[int] = []
    write = lane_checkpoints.checkpoint

    async def counted(connection: object, owner: UUID, prepared: PreparedCheckpoints) -> object:
        lanes.append(len(prepared.checkpoints))
        return await write(connection, owner, prepared)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoints, "checkpoint", counted)
    assert await scene.claim() == LANES
    for owned in [owned for _, owned in scene.hub.lanes()]:
        owned.lane.feed(0, 5, ())
        scene.hub.unpersisted.add(owned)
    assert await scene.checkpointer.flush_once() == LANES

    assert lanes == [LANES]
    assert CHANGES_MAX > LANES


async def test_what_cannot_be_written_now_is_kept_and_written_later(scene: Scene) -> None:
    assert await scene.claim() == LANES
    for owned in [owned for _, owned in scene.hub.lanes()]:
        owned.lane.feed(0, 5, ())
        scene.hub.unpersisted.add(owned)
    async with scene.store.transaction() as holder:
        await holder.execute("SELECT FROM cursor WHERE queue_id IN (3, 7) FOR UPDATE")
        assert await scene.checkpointer.flush_once() == LANES
        assert {owned.lane.key.queue_id for owned in scene.hub.unpersisted._lanes} == {3, 7}
    await scene.checkpointer.flush_once()

    assert scene.hub.unpersisted._lanes == set()
    async with scene.store.connection() as conn:
        rows = await conn.execute("SELECT DISTINCT acked_offset FROM cursor")
        assert await rows.fetchall() == [(5,)]
