"""How much of a backlog matches, as real brokers learn it and `lag` tells it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.client import MessageCenter, OutgoingMessage
from msgbroker.server.app import Broker
from msgconsole.operations.figures.lag import TopicLag, read_lag, sum_by_topic
from msgconsole.operations.stores import Stores
from msgdb.figures.backlog import list_backlog
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import GROUP, PAID, TOPIC, all_settled, register_group, subscribed
from tests.support.eventually import eventually
from tests.support.stress import STRESS


@pytest.fixture
async def stores(database_url: str, message_store: MessageStore) -> AsyncIterator[Stores]:
    async with ConfigStore.open(database_url) as config_store:
        yield Stores(config_store, message_store)


@pytest.fixture
async def group(trade: ConfigService) -> ConfigService:
    """Register a group that wants one message of ten."""
    await trade.subscriber_groups.create("default", GROUP)
    made = await trade.subscriptions.create("default", GROUP, TOPIC, PAID, expression='headers.number == "0"')
    await trade.wait_until_active(made.version)
    return trade


async def publish(center: MessageCenter, count: int) -> None:
    """Publish so many messages, over all queues; every tenth has the number 0."""
    messages = [
        OutgoingMessage(TOPIC, PAID, str(number), {"number": str(number % 10)}, key=f"order-{number}")
        for number in range(count)
    ]
    await center.publish_many(messages)


async def publish_and_settle(broker: Broker, center: MessageCenter, matching: int) -> None:
    """Have so many that match, and nine times as many others, published, handled and settled."""
    async with subscribed(broker.address) as got:
        await publish(center, 10 * matching)
        await got.until(matching)
        await all_settled(broker)
        await broker.checkpointer.flush_once()


async def lag_of(stores: Stores) -> TopicLag:
    (lag,) = sum_by_topic((await read_lag(stores)).queues)
    return lag


async def look(broker: Broker, store: MessageStore) -> tuple[int, int | None, int]:
    """Have the broker look; return how far the group is behind, what matches, and of how much that is not known."""

    async def look_at_once() -> bool:
        async with store.connection() as conn:
            await conn.execute("UPDATE usage_broker SET looked_at = NULL")
        return await broker.figures.backlog.look_once()

    await eventually(look_at_once, what="a look")
    now = datetime.now(UTC)
    async with store.connection() as conn:
        row, *_ = await list_backlog(conn, now - timedelta(hours=1), now + timedelta(minutes=1))
    return row.behind, row.matching, row.matching_unknown


async def test_a_tenth_of_what_a_group_is_behind_by_matches_until_it_asks_for_something_else(
    group: ConfigService, broker: Broker, center: MessageCenter, stores: Stores
) -> None:
    await publish_and_settle(broker, center, matching=200)
    await publish(center, 10_000)

    lag = await lag_of(stores)
    assert (lag.behind, lag.matching_unknown) == (10_000, 0)
    assert lag.matching is not None
    assert 700 < lag.matching < 1_300
    assert await look(broker, stores.messages) == (10_000, lag.matching, 0)

    changed = await group.subscriptions.update("default", GROUP, TOPIC, PAID, expression="int(headers.number) < 5")
    await group.wait_until_active(changed.version)
    lag = await lag_of(stores)
    assert (lag.behind, lag.matching, lag.matching_unknown) == (10_000, None, 10_000)
    assert await look(broker, stores.messages) == (10_000, None, 10_000)

    async with subscribed(broker.address) as got:
        await got.until(5_000, seconds=30)
        await all_settled(broker)
        await broker.checkpointer.flush_once()
    await publish(center, 1_000)
    lag = await lag_of(stores)
    assert (lag.behind, lag.matching_unknown) == (1_000, 0)
    assert lag.matching is not None
    assert 400 < lag.matching < 600


@pytest.mark.usefixtures("group")
async def test_what_one_broker_has_learnt_the_next_one_goes_on_with(start_broker: StartBroker, stores: Stores) -> None:
    first = await start_broker()
    async with subscribed(first.address) as got, MessageCenter(first.address) as center:
        await publish(center, 2_000)
        await got.until(200)
        await all_settled(first)
    await first.shut_down()

    second = await start_broker()
    async with subscribed(second.address) as got, MessageCenter(second.address) as center:
        # Not enough to learn anything from.
        await publish(center, 10)
        await got.until(1)
        await all_settled(second)
        await second.checkpointer.flush_once()
    async with MessageCenter(second.address) as center:
        await publish(center, 1_000)

    lag = await lag_of(stores)
    assert lag.matching is not None
    assert 70 < lag.matching < 130


async def test_stress_messages_that_the_group_may_not_see_do_not_match(
    trade: ConfigService, broker: Broker, center: MessageCenter, stores: Stores
) -> None:
    await register_group(trade, GROUP)
    messages = [
        OutgoingMessage(TOPIC, PAID, str(number), STRESS if number % 4 else {}, key=f"order-{number}")
        for number in range(1_000)
    ]
    async with subscribed(broker.address) as got:
        await center.publish_many(messages)
        await got.until(250)
        await all_settled(broker)
        await broker.checkpointer.flush_once()
    await center.publish_many(messages)

    lag = await lag_of(stores)
    assert (lag.behind, lag.matching_unknown) == (1_000, 0)
    assert lag.matching is not None
    assert 175 < lag.matching < 325


async def test_what_a_paused_subscription_wants_matches_and_to_pause_it_changes_nothing_of_what_was_learnt(
    group: ConfigService, broker: Broker, center: MessageCenter, stores: Stores
) -> None:
    await publish_and_settle(broker, center, matching=100)
    await publish(center, 1_000)
    before = (await lag_of(stores)).matching

    paused = await group.subscriptions.update("default", GROUP, TOPIC, PAID, paused=True)
    await group.wait_until_active(paused.version)

    assert (await lag_of(stores)).matching == before
    async with subscribed(broker.address):
        await all_settled(broker)
        await broker.checkpointer.flush_once()
    await publish(center, 1_000)
    lag = await lag_of(stores)
    # What was stored before waits on the shelf.
    assert (lag.behind, lag.redeliveries, lag.matching_unknown) == (1_000, 100, 0)
    assert lag.matching is not None
    assert 70 < lag.matching < 130
