"""A log that lost its end, as on a standby promoted without the last commits: what is stored next is delivered."""

from __future__ import annotations

import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter, OutgoingMessage
from msgbroker.server.app import Broker
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import PAID, TOPIC, register_group, register_topic, subscribed
from tests.support.eventually import eventually


@pytest.fixture
async def one_queue(config: ConfigService) -> ConfigService:
    """Return the services once a topic of one queue and its group are registered."""
    await register_topic(config, queue_count=1)
    await register_group(config)
    return config


async def publish(address: str, name: str, count: int) -> list[str]:
    """Publish so many messages and return their bodies."""
    bodies = [f"{name} {number}" for number in range(count)]
    async with MessageCenter(address) as center:
        await center.publish_many([OutgoingMessage(TOPIC, PAID, body) for body in bodies])
    return bodies


async def lose_from(store: MessageStore, offset: int) -> None:
    """Take the end of the log away."""
    async with store.connection() as conn:
        await conn.execute("DELETE FROM message WHERE queue_offset >= %s", (offset,))


async def persisted(store: MessageStore, offset: int) -> None:
    """Wait until the cursor is at *offset*."""

    async def is_there() -> bool:
        async with store.connection() as conn:
            return await (await conn.execute("SELECT acked_offset FROM cursor")).fetchall() == [(offset,)]

    await eventually(is_there, what=f"the cursor at {offset}")


async def given_up(store: MessageStore, offset: int) -> None:
    """Wait until the lane is nobody's, and its cursor at *offset*."""

    async def is_left() -> bool:
        async with store.connection() as conn:
            rows = await (await conn.execute("SELECT acked_offset, owner FROM cursor")).fetchall()
        return rows == [(offset, None)]

    await eventually(is_left, what="the lane given up")


async def test_a_lane_that_was_read_by_nobody_meanwhile_begins_before_the_end_of_its_log(
    one_queue: ConfigService, broker: Broker, message_store: MessageStore
) -> None:
    async with subscribed(broker.address) as got:
        await got.until(len(await publish(broker.address, "old", 20)))
    await given_up(message_store, 20)
    await lose_from(message_store, 10)
    new = await publish(broker.address, "new", 5)

    async with subscribed(broker.address) as got:
        await eventually(lambda: set(new) <= set(got.bodies), what="what was stored after the loss")
    assert broker.hub.counters.lanes_clamped == 1


async def test_what_is_stored_at_offsets_that_were_read_before_is_delivered(
    one_queue: ConfigService, broker: Broker, message_store: MessageStore
) -> None:
    async with subscribed(broker.address) as got:
        await got.until(len(await publish(broker.address, "old", 20)))
        await persisted(message_store, 20)
        await lose_from(message_store, 10)
        # As many as were lost, and more: where the log ends tells nobody any more.
        new = await publish(broker.address, "new", 15)

        await eventually(lambda: set(new) <= set(got.bodies), what="what was stored after the loss")
    assert (broker.hub.counters.ends_lost, broker.hub.counters.lanes_clamped) == (1, 1)


async def test_an_end_that_another_broker_wrote_anew_is_noticed(
    one_queue: ConfigService, start_broker: StartBroker, message_store: MessageStore
) -> None:
    reading, writing = await start_broker(), await start_broker()
    async with subscribed(reading.address) as got:
        await got.until(len(await publish(reading.address, "old", 20)))
        await persisted(message_store, 20)
        await eventually(writing.cluster.heartbeats.groups_at_others)
        await lose_from(message_store, 10)
        new = await publish(writing.address, "new", 5)

        await eventually(lambda: set(new) <= set(got.bodies), what="what was stored after the loss")
