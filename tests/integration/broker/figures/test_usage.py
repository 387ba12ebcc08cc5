"""What brokers count adds up to the log and to what groups acknowledged, by types, whichever broker counted it."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime

from confdb.services import ConfigService
from msgbroker.client import Message, MessageCenter, OutgoingMessage, Reject
from msgbroker.server.app import Broker
from msgconsole.operations.dead_letters.redrive import redrive
from msgconsole.operations.stores import Stores
from msgdb.dead_letters.wanted import WantedDeadLetters
from msgdb.figures.completeness import incomplete_minutes, open_from
from msgdb.figures.usage import list_usage_brokers
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import GROUP, PAID, REFUNDED, TOPIC, all_settled, register_group, subscribed
from tests.support.eventually import eventually
from tests.support.figures import published, published_by_the_log, usages
from tests.support.jobs import buried, ended
from tests.support.stress import STRESS, WHITELISTED, allow

OTHER = "SG_STOCK"


async def test_what_was_published_and_delivered_is_counted_by_type(
    trade: ConfigService, broker: Broker, center: MessageCenter, message_store: MessageStore
) -> None:
    await register_group(trade, GROUP, PAID, REFUNDED)
    await register_group(trade, OTHER, PAID)
    out = [OutgoingMessage(TOPIC, PAID if n % 3 else REFUNDED, str(n), key=str(n)) for n in range(300)]
    async with subscribed(broker.address) as got, subscribed(broker.address, OTHER) as others:
        await center.publish_many(out)
        await got.until(300)
        await others.until(200)
        await all_settled(broker)

    assert await broker.figures.usage.write_once()

    assert await published(message_store) == await published_by_the_log(message_store)
    found = Counter(
        {(usage.group_id, usage.event_code): usage.delivered for usage in await usages(message_store) if usage.group_id}
    )
    ours, theirs = await id_of(trade, GROUP), await id_of(trade, OTHER)
    assert found == {(ours, PAID): 200, (ours, REFUNDED): 100, (theirs, PAID): 200}
    assert all(sum(usage.latency) == usage.delivered for usage in await usages(message_store))
    assert all(usage.size_bytes > usage.delivered for usage in await usages(message_store))


async def test_attempts_that_fail_and_dead_letters_are_counted(
    trade: ConfigService, broker: Broker, center: MessageCenter, message_store: MessageStore
) -> None:
    await register_group(trade, retry_schedule_seconds=(0.05, 0.05))

    async def fail(message: Message) -> None:
        if message.body == b"bad":
            raise Reject("it is bad")
        if message.attempt < 3:
            raise ValueError("not yet")

    async with subscribed(broker.address, act=fail) as got:
        await center.publish(TOPIC, PAID, "bad")
        await center.publish(TOPIC, PAID, "good")
        await got.until(4)
        await all_settled(broker)
    await broker.figures.usage.write_once()

    rows = await usages(message_store, group_id=await id_of(trade, GROUP))
    assert sum(row.delivered for row in rows) == 1
    assert sum(row.retried for row in rows) == 2
    assert sum(row.dead_lettered for row in rows) == 1


async def test_stress_traffic_is_counted_apart(
    trade: ConfigService, broker: Broker, center: MessageCenter, message_store: MessageStore
) -> None:
    await register_group(trade, WHITELISTED)
    await allow(trade)
    async with subscribed(broker.address, WHITELISTED) as got:
        await center.publish(TOPIC, PAID, "stress", headers=STRESS)
        await center.publish(TOPIC, PAID, "normal")
        await got.until(2)
        await all_settled(broker)
    await broker.figures.usage.write_once()

    assert await published(message_store) == await published_by_the_log(message_store)
    rows = await usages(message_store, group_id=await id_of(trade, WHITELISTED))
    assert sorted((row.stress, row.delivered) for row in rows) == [(False, 1), (True, 1)]


async def test_what_is_redriven_is_not_published_once_more(
    trade: ConfigService, broker: Broker, config: ConfigService, message_store: MessageStore
) -> None:
    await register_group(trade)
    await buried(broker.address, message_store, 3)
    wanted = WantedDeadLetters(namespace="default", is_open=True)
    stores = Stores(config._store, message_store)
    async with subscribed(broker.address) as got:
        begun = await redrive(stores, wanted, actor="ada", reason="why")
        await ended(stores, begun.job_id)
        await got.until(3)
        await all_settled(broker)
    await broker.figures.usage.write_once()

    assert await published(message_store) == await published_by_the_log(message_store)
    rows = await usages(message_store, group_id=await id_of(trade, GROUP))
    assert sum(row.redriven for row in rows) == sum(row.delivered for row in rows) == 3
    assert sum(row.dead_lettered for row in rows) == 3
    assert sum(row.replayed for row in rows) == 0


async def test_two_brokers_add_up_and_one_that_ends_in_good_order_leaves_nothing_out(
    trade: ConfigService, broker: Broker, start_broker: StartBroker, message_store: MessageStore
) -> None:
    await register_group(trade)
    other = await start_broker()
    async with (
        MessageCenter(broker.address) as one,
        MessageCenter(other.address) as two,
        subscribed(broker.address) as got,
    ):
        await asyncio.gather(
            *(center.publish(TOPIC, PAID, str(n), key=str(n)) for n in range(50) for center in (one, two))
        )
        await got.until(100)
        await eventually(lambda: is_settled(broker), what="everything settled")
    await other.shut_down()
    await broker.shut_down()

    assert await published(message_store) == await published_by_the_log(message_store)
    rows = await usages(message_store, group_id=await id_of(trade, GROUP))
    assert sum(row.delivered for row in rows) == 100
    now = datetime.now(UTC)
    async with message_store.connection() as conn:
        brokers = await list_usage_brokers(conn)
    assert [each.has_ended for each in brokers] == [True, True]
    assert {each.broker for each in brokers} == {broker.address, other.address}
    assert open_from(brokers, now) == now
    assert incomplete_minutes(brokers, (), datetime(2020, 1, 1, tzinfo=UTC), now, now) == []


async def test_a_broker_says_that_it_counts_before_it_serves(broker: Broker, message_store: MessageStore) -> None:
    async with message_store.connection() as conn:
        (said,) = await list_usage_brokers(conn)

    assert (said.broker, said.has_ended) == (broker.address, False)


def is_settled(broker: Broker) -> bool:
    lanes = [owned for _, owned in broker.hub.lanes()]
    end_of = broker.hub.cache.end_of
    return bool(lanes) and all(owned.lane.acked_offset == end_of(owned.lane.key.queue_id) for owned in lanes)


async def id_of(config: ConfigService, group: str) -> int:
    return (await config.subscriber_groups.get("default", group)).group_id
