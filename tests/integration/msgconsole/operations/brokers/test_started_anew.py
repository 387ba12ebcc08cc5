"""A broker that was killed and comes back at its address: for some seconds both are live, and one is there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from confdb.brokers import BrokerBeat, BrokerRegistry
from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.client import MessageCenter
from msgbroker.client.connect.inspection import WhichInstances
from msgconsole.operations.brokers.connected import list_instances, list_publishers
from msgconsole.operations.brokers.disconnecting import disconnect, plan_disconnect
from msgconsole.operations.stores import Stores
from msgconsole.operations.unsettled.answers import UnsettledReport, WantedUnsettled
from msgconsole.operations.unsettled.listing import list_unsettled
from msgdb.requests import RequestOutcome
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBrokerProcess
from tests.support.broker_processes import port_to_come_back_to
from tests.support.collecting import GROUP, PAID, TOPIC, register_group, register_topic
from tests.support.eventually import eventually
from tests.support.raw_streams import raw_subscriber


@pytest.fixture
async def stores(database_url: str, message_store: MessageStore) -> AsyncIterator[Stores]:
    async with ConfigStore.open(database_url) as opened:
        yield Stores(opened, message_store)


async def test_what_it_has_is_told_once_and_asked_of_the_one_that_is_there(
    stores: Stores, config: ConfigService, broker_process: StartBrokerProcess
) -> None:
    registry = BrokerRegistry(stores.config)
    listen = f"127.0.0.1:{port_to_come_back_to()}"
    first = broker_process(listen=listen)
    await eventually(registry.list_live, 30)
    (dead,) = await registry.list_live()
    await register_topic(config, queue_count=2)
    await register_group(config)
    first.kill()
    broker_process(listen=listen)

    async def both() -> set[UUID]:
        # Its last heartbeat is less than five seconds old.
        await registry.beat(BrokerBeat(dead.broker_id, listen, dead.host, dead.pid, dead.snapshot_version))
        ids = {each.broker_id for each in await registry.list_live() if each.address == listen}
        return ids if len(ids) == 2 else set()

    async def look() -> UnsettledReport | None:
        await both()
        report = await list_unsettled(stores, WantedUnsettled(namespace="default", group=GROUP))
        return report if report.is_complete and report.messages else None

    await eventually(both, 30)
    async with raw_subscriber(listen, instance_id="a") as subscriber, MessageCenter(listen) as center:
        await center.publish(TOPIC, PAID, "held")
        await subscriber.until(1, 30)
        report = await eventually(look)
        await both()
        instances = await list_instances(stores, WhichInstances(), 10)
        publishers = await list_publishers(stores, "", "", 10)
        plan = await plan_disconnect(stores, WhichInstances(instance_id="a"))
        done = await disconnect(stores, plan.connections, actor="ada", reason="hangs", on_waiting=lambda _: None)

    assert report is not None
    assert [row.queue_offset for row in report.messages] == [0]
    assert [each.instance_id for each in instances.instances] == ["a"]
    assert len(publishers.publishers) == 1
    assert [each.outcome for each in done] == [RequestOutcome.DISCONNECTED]
