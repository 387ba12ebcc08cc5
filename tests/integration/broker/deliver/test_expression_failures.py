"""Expressions that fail on messages: no match, and operators learn how often, and of which header."""

from __future__ import annotations

from confdb.services import ConfigService
from msgbroker.client import MessageCenter
from msgbroker.server.app import Broker
from msgdb.reports.expression_failures import ExpressionFailureRow, list_expression_failures
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import GROUP, PAID, REFUNDED, TOPIC, all_settled, register_group, subscribed
from tests.support.eventually import eventually

NOT_HZ = 'headers.region != "hz"'


async def subscribe_by_header(config: ConfigService, expression: str = NOT_HZ) -> int:
    """Let the group have a HEADER subscription beside its other one; return its id."""
    await register_group(config, GROUP, REFUNDED)
    made = await config.subscriptions.create("default", GROUP, TOPIC, PAID, expression=expression)
    await config.wait_until_active(made.version)
    return made.thing.subscription_id


async def publish(address: str, *regions: str | None) -> None:
    """Publish a message for each region; None: without that header."""
    async with MessageCenter(address) as center:
        for region in regions:
            await center.publish(TOPIC, PAID, region or "", headers={"region": region} if region else {})


async def stored(store: MessageStore) -> list[ExpressionFailureRow]:
    """Return the failures in the store."""
    async with store.connection() as conn:
        return await list_expression_failures(conn)


async def test_failures_are_counted_by_subscription_with_the_header_that_was_missing(
    trade: ConfigService, broker: Broker, message_store: MessageStore
) -> None:
    subscription_id = await subscribe_by_header(trade)
    async with subscribed(broker.address) as got:
        await publish(broker.address, None, "sh", None, None)
        assert await got.until(1) == ["sh"]
        await all_settled(broker)
        await broker.failures.leave()

    (row,) = await stored(message_store)
    assert (row.subscription_id, row.failures, row.last_header) == (subscription_id, 3, "region")


async def test_what_failed_is_written_soon_and_what_is_left_when_the_broker_stops(
    config: ConfigService, trade: ConfigService, start_broker: StartBroker, message_store: MessageStore
) -> None:
    broker = await start_broker()
    await subscribe_by_header(config)
    async with subscribed(broker.address):
        await publish(broker.address, None)
        await eventually(lambda: stored(message_store))
        # The next is written ten seconds later, by itself.
        await publish(broker.address, None)
        await all_settled(broker)
        await broker.shut_down()

    (row,) = await stored(message_store)
    assert row.failures == 2
    assert row.last_failed_at > row.first_failed_at


async def test_where_nothing_fails_nothing_is_written(
    trade: ConfigService, broker: Broker, message_store: MessageStore
) -> None:
    await subscribe_by_header(trade, f'"region" in headers && {NOT_HZ}')
    async with subscribed(broker.address) as got:
        await publish(broker.address, None, "sh", "hz")
        assert await got.until(1) == ["sh"]
        await all_settled(broker)

    assert len(broker.hub.evaluations.failures) == 0
    assert await stored(message_store) == []
