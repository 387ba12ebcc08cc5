"""From a publisher to the handlers that asked: what is delivered to whom, once, from where on."""

from __future__ import annotations

import asyncio

import pytest

from confdb.services import ConfigService
from msgbroker.client import Message, MessageCenter, OutgoingMessage, Receipt
from msgbroker.contract.errors import BeginningPassedError
from msgbroker.server.app import Broker
from msgdb.lanes.lag import list_lag
from msgdb.store import MessageStore
from tests.support.collecting import (
    GROUP,
    PAID,
    REFUNDED,
    TOPIC,
    all_settled,
    register_group,
    register_topic,
    subscribed,
)
from tests.support.eventually import eventually


async def test_a_handler_gets_what_was_published(trade: ConfigService, broker: Broker, center: MessageCenter) -> None:
    await register_group(trade)
    async with subscribed(broker.address) as got:
        receipt = await center.publish(
            TOPIC, PAID, b"hello", headers={"region": "hz"}, key="order-1", ordering_key="customer-1"
        )
        await got.until(1)

    (message,) = got.messages
    assert (message.topic, message.event_code, message.body) == (TOPIC, PAID, b"hello")
    assert (message.headers, message.key, message.ordering_key) == ({"region": "hz"}, "order-1", "customer-1")
    assert (message.message_id, message.stored_at) == (receipt.message_id, receipt.stored_at)
    assert (message.queue_id, message.queue_offset) == (receipt.queue_id, receipt.queue_offset)
    assert (message.attempt, message.stress, message.publisher_group) == (1, False, "")
    assert message.born_host


async def test_a_direct_subscription_gets_its_event_code_only(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade, GROUP, PAID)
    await register_group(trade, "SG_ALL", "*")
    async with subscribed(broker.address) as paid, subscribed(broker.address, "SG_ALL") as everything:
        for event_code in (REFUNDED, PAID, REFUNDED, PAID):
            await center.publish(TOPIC, event_code, event_code)
        await everything.until(4)
        await paid.until(2)

    assert sorted(everything.bodies) == [PAID, PAID, REFUNDED, REFUNDED]
    assert paid.bodies == [PAID, PAID]


async def test_a_header_subscription_gets_what_satisfies_its_expression(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await trade.subscriber_groups.create("default", GROUP)
    expression = 'headers.region == "hz" && int(headers.amount) > 100'
    made = await trade.subscriptions.create("default", GROUP, TOPIC, "*", expression=expression)
    await trade.wait_until_active(made.version)
    published = [
        {"region": "hz", "amount": "101"},
        {"region": "hz", "amount": "100"},
        {"region": "sh", "amount": "500"},
        {"region": "hz"},
        {"region": "hz", "amount": "many"},
        {},
        {"region": "hz", "amount": "1000", "more": "x"},
    ]
    async with subscribed(broker.address) as got:
        for number, headers in enumerate(published):
            await center.publish(TOPIC, PAID, str(number), headers=headers)
        await got.until(2)
        await all_settled(broker)

    assert sorted(got.bodies) == ["0", "6"]


async def test_subscriptions_that_overlap_deliver_a_message_once(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade, GROUP, PAID, "*")
    made = await trade.subscriptions.create("default", GROUP, TOPIC, REFUNDED, expression='"region" in headers')
    await trade.wait_until_active(made.version)
    async with subscribed(broker.address) as got:
        for number in range(20):
            await center.publish(TOPIC, (PAID, REFUNDED)[number % 2], str(number), headers={"region": "hz"})
        await got.until(20)
        await all_settled(broker)

    assert sorted(got.bodies, key=int) == [str(number) for number in range(20)]


async def test_every_group_gets_its_own_copy(trade: ConfigService, broker: Broker, center: MessageCenter) -> None:
    for group in ("SG_ONE", "SG_TWO"):
        await register_group(trade, group)
    async with subscribed(broker.address, "SG_ONE") as one, subscribed(broker.address, "SG_TWO") as two:
        await center.publish_many([OutgoingMessage(TOPIC, PAID, str(number)) for number in range(500)])
        await one.until(500)
        await two.until(500)

    assert len(set(one.bodies)) == len(set(two.bodies)) == 500


async def test_instances_of_a_group_share_its_messages(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade)
    async with subscribed(broker.address) as one, subscribed(broker.address) as two:
        await center.publish_many([OutgoingMessage(TOPIC, PAID, str(number)) for number in range(1_000)])
        await eventually(lambda: len(one.messages) + len(two.messages) >= 1_000)
        await all_settled(broker)

    assert sorted(map(int, one.bodies + two.bodies)) == list(range(1_000))
    assert one.messages
    assert two.messages


async def test_messages_of_one_key_stay_in_order(trade: ConfigService, broker: Broker, center: MessageCenter) -> None:
    await register_group(trade)
    async with subscribed(broker.address, concurrency=1) as got:
        out = [OutgoingMessage(TOPIC, PAID, str(number), key=f"k{number % 5}") for number in range(500)]
        receipts = await center.publish_many(out)
        await got.until(500)

    for key in range(5):
        of_key = [int(body) for body in got.bodies if int(body) % 5 == key]
        assert of_key == sorted(of_key)
        queues = {receipt.queue_id for receipt in receipts[key::5] if isinstance(receipt, Receipt)}
        assert len(queues) == 1


async def test_what_was_stored_before_the_subscription_is_delivered_only_if_asked_for(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    for number in range(10):
        await center.publish(TOPIC, PAID, f"before {number}")
    await register_group(trade, "SG_NEW")
    await trade.subscriber_groups.create("default", "SG_ALL")
    made = await trade.subscriptions.create("default", "SG_ALL", TOPIC, PAID, from_beginning=True)
    await trade.wait_until_active(made.version)
    async with subscribed(broker.address, "SG_NEW") as new, subscribed(broker.address, "SG_ALL") as everything:
        await center.publish(TOPIC, PAID, "after")
        await new.until(1)
        await everything.until(11)

    assert new.bodies == ["after"]
    assert len(set(everything.bodies)) == 11


async def test_a_group_that_has_read_a_topic_is_told_that_it_cannot_begin_again(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade, GROUP, PAID)
    await center.publish(TOPIC, REFUNDED, "before")
    async with subscribed(broker.address) as got:
        await center.publish(TOPIC, PAID, "paid")
        await got.until(1)

    with pytest.raises(BeginningPassedError):
        await trade.subscriptions.create("default", GROUP, TOPIC, REFUNDED, from_beginning=True)


async def test_nothing_published_after_a_subscription_is_active_is_missed(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    published: list[str] = []
    stop = asyncio.Event()

    async def publish() -> None:
        while not stop.is_set():
            batch = [str(len(published) + number) for number in range(20)]
            await center.publish_many([OutgoingMessage(TOPIC, PAID, body) for body in batch])
            published.extend(batch)

    publishing = asyncio.create_task(publish())
    await eventually(lambda: len(published) > 100)
    await register_group(trade)
    # Whatever is offered from here on, is published after it was active.
    first_after = len(published) + 20
    async with subscribed(broker.address) as got:
        await eventually(lambda: len(published) > first_after + 200)
        stop.set()
        await publishing
        wanted = set(published[first_after:])
        await eventually(lambda: wanted <= set(got.bodies))
        await all_settled(broker)

    assert len(got.bodies) == len(set(got.bodies))


async def test_a_subscription_added_to_a_group_at_work_misses_nothing_either(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade, GROUP, PAID)
    async with subscribed(broker.address) as got:
        await center.publish(TOPIC, REFUNDED, "before")
        made = await trade.subscriptions.create("default", GROUP, TOPIC, REFUNDED)
        await trade.wait_until_active(made.version)
        receipts = await center.publish_many([OutgoingMessage(TOPIC, REFUNDED, str(number)) for number in range(100)])
        await got.until(100)

    assert all(isinstance(receipt, Receipt) for receipt in receipts)
    assert sorted(map(int, got.bodies)) == list(range(100))


async def test_an_open_topic_registers_the_codes_that_are_used(
    config: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_topic(config, "TP_OPEN", is_open=True)
    version = (await config.subscriber_groups.create("default", GROUP)).version
    version = (await config.subscriptions.create("default", GROUP, "TP_OPEN", "*")).version
    await config.wait_until_active(version)
    async with subscribed(broker.address, topic="TP_OPEN") as got:
        await center.publish("TP_OPEN", "EC_NEVER_SEEN", "hello")
        await got.until(1)

    async def registered() -> bool:
        page = await config.event_codes.list("default", "TP_OPEN")
        return "EC_NEVER_SEEN" in [code.name for code in page.items]

    await eventually(registered, 5)


async def test_lag_counts_what_is_not_settled(
    trade: ConfigService, broker: Broker, center: MessageCenter, message_store: MessageStore
) -> None:
    await register_group(trade)
    go_on = asyncio.Event()

    async def wait(_: Message) -> None:
        await go_on.wait()

    async def lag() -> int:
        async with message_store.connection() as conn:
            return sum(lane.unsettled for lane in await list_lag(conn))

    async with subscribed(broker.address, act=wait) as got:
        await center.publish_many([OutgoingMessage(TOPIC, PAID, str(number)) for number in range(50)])
        await got.until(50)
        assert await lag() == 50
        go_on.set()

        async def is_zero() -> bool:
            return await lag() == 0

        await eventually(is_zero)


async def test_a_backlog_is_delivered_once_and_completely_from_the_store(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade)
    body = "x" * 4_000
    await center.publish_many([OutgoingMessage(TOPIC, PAID, f"{number} {body}") for number in range(3_000)])
    # What is in memory would hide the reads.
    broker.hub.cache._tail.forget()

    async with subscribed(broker.address) as got:
        await got.until(3_000, 20)
        await all_settled(broker)

    assert sorted(int(body.split()[0]) for body in got.bodies) == list(range(3_000))


@pytest.mark.parametrize("count", [1, 999, 1_000, 1_001])
async def test_answers_come_in_the_order_of_the_messages(
    trade: ConfigService, center: MessageCenter, message_store: MessageStore, count: int
) -> None:
    receipts = await center.publish_many([OutgoingMessage(TOPIC, PAID, str(number)) for number in range(count)])

    async with message_store.connection() as conn:
        rows = await (await conn.execute("SELECT message_id, convert_from(body, 'UTF8') FROM message")).fetchall()
    bodies = dict(rows)
    assert [bodies[receipt.message_id] for receipt in receipts if isinstance(receipt, Receipt)] == [
        str(number) for number in range(count)
    ]
