"""A group that ends under traffic, in a process that serves two, costs the other one nothing."""

from __future__ import annotations

import asyncio

from confdb.services import ConfigService
from msgbroker.client import GroupNotFoundError, InstanceReplacedError, Message, MessageCenter
from msgbroker.server.app import Broker
from tests.support.collecting import PAID, TOPIC, Collected, all_settled, register_group, subscribed
from tests.support.eventually import eventually

_COUNT = 2_000
_GONE, _LEFT = "SG_GONE", "SG_LEFT"


async def publish_all(center: MessageCenter) -> list[str]:
    """Publish numbered messages as fast as they are taken; return their bodies."""
    for n in range(_COUNT):
        await center.ready()
        center.publish_soon(TOPIC, PAID, str(n), key=str(n))
    await center.flush()
    return [str(n) for n in range(_COUNT)]


async def test_a_group_that_is_deleted_under_traffic_costs_its_neighbour_nothing(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade, _GONE)
    await register_group(trade, _LEFT)
    begun = asyncio.Event()

    async def take_long(message: Message) -> None:
        begun.set()
        await asyncio.sleep(0.01)

    gone, left = Collected(take_long), Collected()
    async with MessageCenter(broker.address, drain_timeout_seconds=5) as service:
        service.subscriber(group=_GONE, topic=TOPIC, concurrency=4)(gone.handle)
        service.subscriber(group=_LEFT, topic=TOPIC)(left.handle)
        running = asyncio.ensure_future(service.run())
        publishing = asyncio.ensure_future(publish_all(center))
        await begun.wait()
        await trade.subscriber_groups.delete("default", _GONE)
        await eventually(lambda: service.ended_groups)
        bodies = await publishing
        # And what comes after it.
        await center.publish(TOPIC, PAID, "the last")
        await eventually(lambda: "the last" in left.bodies)
        await all_settled(broker)
        assert not running.done()
        assert len(gone.messages) < _COUNT
        await service.close()
        ended = await running

    assert sorted(left.bodies) == sorted([*bodies, "the last"])
    assert {message.attempt for message in left.messages} == {1}
    assert {group: type(error) for group, error in ended.items()} == {_GONE: GroupNotFoundError}


async def test_an_instance_that_is_replaced_in_one_group_goes_on_in_the_other(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade, _GONE)
    await register_group(trade, _LEFT)
    gone, left = Collected(), Collected()
    async with MessageCenter(broker.address, instance_id="one", drain_timeout_seconds=2) as service:
        service.subscriber(group=_GONE, topic=TOPIC)(gone.handle)
        service.subscriber(group=_LEFT, topic=TOPIC)(left.handle)
        await service.start()
        running = asyncio.ensure_future(service.run())
        async with subscribed(broker.address, _GONE, instance_id="one") as newcomer:
            await eventually(lambda: service.ended_groups)
            await center.publish(TOPIC, PAID, "1")
            await newcomer.until(1)
            await left.until(1)
        assert not running.done()
        await service.close()
        ended = await running

    assert {group: type(error) for group, error in ended.items()} == {_GONE: InstanceReplacedError}
    assert gone.bodies == []
