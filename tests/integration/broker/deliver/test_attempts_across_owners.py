"""An attempt that ended its instance is counted by whoever owns the lane next."""

from __future__ import annotations

from typing import Any

import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter
from msgbroker.server.app import Broker
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import PAID, TOPIC, register_group
from tests.support.eventually import eventually
from tests.support.raw_streams import raw_subscriber


@pytest.fixture
async def broker(start_broker: StartBroker) -> Broker:
    """Return a broker that keeps its leases however busy the machine is: with one that passes, the count is lost."""
    return await start_broker(lease_seconds=60.0)


def in_flight(broker: Broker) -> int:
    return sum(owned.lane.in_flight_count for _, owned in broker.hub.lanes())


async def test_whenever_the_lane_was_persisted_in_between(
    trade: ConfigService, broker: Broker, center: MessageCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_group(trade)
    await center.publish(TOPIC, PAID)
    moves = broker.cluster.ownership._moves
    go_on = moves.go_on

    async def leave_what_is_persisted(wanted: Any) -> None:
        await broker.checkpointer.flush_once()
        await go_on(wanted)

    monkeypatch.setattr(moves, "go_on", leave_what_is_persisted)
    async with raw_subscriber(broker.address) as crashing:
        await crashing.until(1)
    await eventually(lambda: not broker.hub.groups)
    async with raw_subscriber(broker.address) as following:
        (given,) = await following.until(1)

    assert given.delivery.attempt == 2


async def test_after_the_broker_was_restarted_in_good_order(trade: ConfigService, start_broker: StartBroker) -> None:
    await register_group(trade)
    first = await start_broker(lease_seconds=60.0)
    async with MessageCenter(first.address) as center:
        await center.publish(TOPIC, PAID)
    async with raw_subscriber(first.address, instance_id="paused") as paused:
        await paused.send(pause=True)
        await eventually(lambda: any(i.is_paused for g in first.hub.groups.values() for i in g.instances.values()))
        async with raw_subscriber(first.address, instance_id="crashing") as crashing:
            await crashing.until(1)
        await eventually(lambda: not in_flight(first))
        # As a checkpoint leaves it that is done just then.
        await first.checkpointer.flush_once()
        await first.shut_down()
    second = await start_broker()
    async with raw_subscriber(second.address) as following:
        (given,) = await following.until(1)

    assert given.delivery.attempt == 2
