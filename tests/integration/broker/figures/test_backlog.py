"""How far groups are behind, as brokers have the store look at it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from confdb.services import ConfigService
from msgbroker.client import MessageCenter
from msgbroker.server.app import Broker
from msgdb.figures.backlog import list_backlog
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import GROUP, PAID, TOPIC, all_settled, register_group, subscribed
from tests.support.eventually import eventually


async def behind(store: MessageStore) -> list[int]:
    now = datetime.now(UTC)
    async with store.connection() as conn:
        return [row.behind for row in await list_backlog(conn, now - timedelta(hours=1), now + timedelta(minutes=1))]


async def test_a_group_without_an_instance_is_seen_to_fall_behind_and_to_catch_up(
    trade: ConfigService, broker: Broker, center: MessageCenter, message_store: MessageStore
) -> None:
    await register_group(trade)
    for number in range(5):
        await center.publish(TOPIC, PAID, str(number))
    looks = broker.figures.backlog

    assert await looks_at_once(broker, message_store)
    assert (await behind(message_store))[0] == 5

    async with subscribed(broker.address) as got:
        await got.until(5)
        await all_settled(broker)
        await broker.checkpointer.flush_once()
    assert await looks_at_once(broker, message_store)
    assert (await behind(message_store))[0] == 0
    assert looks._readings is not None


async def test_of_several_brokers_one_looks(
    trade: ConfigService, broker: Broker, start_broker: StartBroker, message_store: MessageStore
) -> None:
    await register_group(trade, GROUP)
    other = await start_broker()
    # Both look as they start; whichever was first, nobody looks again so soon.
    await eventually(lambda: has_looked(message_store), what="a look")

    assert not await broker.figures.backlog.look_once()
    assert not await other.figures.backlog.look_once()


async def has_looked(store: MessageStore) -> bool:
    async with store.connection() as conn:
        row = await (await conn.execute("SELECT max(looked_at) FROM usage_broker")).fetchone()
    return row is not None and row[0] is not None


async def looks_at_once(broker: Broker, store: MessageStore) -> bool:
    """Have the broker look, whenever anybody has looked before."""

    async def look() -> bool:
        async with store.connection() as conn:
            await conn.execute("UPDATE usage_broker SET looked_at = NULL")
        return await broker.figures.backlog.look_once()

    return await eventually(look, what="a look")
