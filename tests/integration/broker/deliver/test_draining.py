"""A broker that stops waits for its subscribers: what they have begun is settled there, and handled once."""

from __future__ import annotations

import asyncio

from confdb.services import ConfigService
from msgbroker.client import Message, MessageCenter
from msgbroker.server.app import Broker
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import GROUP, PAID, TOPIC, register_group, register_topic
from tests.support.eventually import eventually


def serves_instances(broker: Broker) -> bool:
    return any(group.instances for group in broker.hub.groups.values())


def extended_count(broker: Broker) -> int:
    lanes = [owned for _, owned in broker.hub.lanes()]
    return sum(owned.lane.counters.extended for owned in lanes)


async def test_what_has_begun_when_a_broker_stops_is_settled_there(
    config: ConfigService, start_broker: StartBroker
) -> None:
    brokers = [await start_broker(drain_seconds=30.0) for _ in range(2)]
    await register_topic(config, queue_count=1)
    await register_group(config)
    handled: list[tuple[bytes, int]] = []
    gate = asyncio.Event()
    async with MessageCenter([broker.address for broker in brokers], drain_timeout_seconds=2) as center:

        @center.subscriber(group=GROUP, topic=TOPIC)
        async def handle(message: Message) -> None:
            handled.append((message.body, message.attempt))
            await gate.wait()

        await center.start()
        await center.publish(TOPIC, PAID, b"1")
        await eventually(lambda: handled, 20)
        (stopping,) = [broker for broker in brokers if serves_instances(broker)]
        shutting_down = asyncio.ensure_future(stopping.shut_down())
        await eventually(lambda: all(instance.wants_nothing for instance in stopping.grpc_door.subscriber._instances))
        gate.set()
        await shutting_down
        await center.publish(TOPIC, PAID, b"2")
        await eventually(lambda: len(handled) > 1, 20)

    assert handled == [(b"1", 1), (b"2", 1)]


async def test_a_handler_that_takes_longer_than_the_ack_timeout_is_waited_for_where_a_broker_stops(
    config: ConfigService, start_broker: StartBroker
) -> None:
    brokers = [await start_broker(drain_seconds=30.0) for _ in range(2)]
    await register_topic(config, queue_count=1)
    await register_group(config, ack_timeout_seconds=1.0)
    handled: list[tuple[bytes, int]] = []
    gate = asyncio.Event()
    async with MessageCenter([broker.address for broker in brokers], drain_timeout_seconds=2) as center:

        @center.subscriber(group=GROUP, topic=TOPIC)
        async def handle(message: Message) -> None:
            handled.append((message.body, message.attempt))
            await gate.wait()

        await center.start()
        await center.publish(TOPIC, PAID, b"slow")
        await eventually(lambda: handled, 20)
        (stopping,) = [broker for broker in brokers if serves_instances(broker)]
        await eventually(lambda: extended_count(stopping), what="it takes long")
        shutting_down = asyncio.ensure_future(stopping.shut_down())
        await eventually(lambda: all(instance.wants_nothing for instance in stopping.grpc_door.subscriber._instances))
        # Once in each third of the ack timeout, at most.
        enough = extended_count(stopping) + 5
        await eventually(lambda: extended_count(stopping) >= enough, what="it is kept on")
        gate.set()
        await shutting_down
        await center.publish(TOPIC, PAID, b"next")
        await eventually(lambda: len(handled) > 1, 20)

    assert handled == [(b"slow", 1), (b"next", 1)]
