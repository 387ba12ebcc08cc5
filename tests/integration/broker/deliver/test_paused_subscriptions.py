"""Subscriptions that are paused, changed and deleted while their group is served."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from confdb import features
from confdb.routes import GroupRoute, SubscriptionMode
from confdb.services import ConfigService, WantedChanges
from msgbroker.client import Message, MessageCenter, OutgoingMessage
from msgbroker.contract.errors import FeatureNotEverywhereError, InvalidSettingError, SubscriptionNotFoundError
from msgbroker.engine.lane.config import LaneConfig
from msgbroker.server.app import Broker
from msgbroker.server.deliver.lanes.rules import lane_config
from msgdb.lanes.lag import list_lag
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import GROUP, PAID, REFUNDED, TOPIC, all_settled, register_group, subscribed
from tests.support.eventually import eventually


@pytest.fixture
async def group(trade: ConfigService) -> ConfigService:
    """Register a group that wants both event codes, each by a subscription of its own."""
    await register_group(trade, GROUP, PAID, REFUNDED)
    return trade


async def change(config: ConfigService, event_code: str = REFUNDED, **changed: Any) -> None:
    """Change a subscription, and return once every broker works by it."""
    await config.wait_until_active(
        (await config.subscriptions.update("default", GROUP, TOPIC, event_code, **changed)).version
    )


async def publish(center: MessageCenter, event_code: str, *names: str, **headers: str) -> None:
    for name in names:
        await center.publish(TOPIC, event_code, name, key="one", headers=headers)


async def shelved(store: MessageStore, count: int) -> None:
    """Wait until so many messages are on the shelf, as it is stored."""

    async def look() -> bool:
        async with store.connection() as conn:
            return sum(lag.shelved for lag in await list_lag(conn)) == count

    await eventually(look, what=f"{count} shelved")


async def test_what_a_paused_subscription_wants_waits_and_comes_in_order_when_it_goes_on(
    group: ConfigService, broker: Broker, center: MessageCenter, message_store: MessageStore
) -> None:
    async with subscribed(broker.address) as ours:
        await change(group, paused=True)
        for number in range(5):
            await publish(center, REFUNDED, f"refunded {number}")
            await publish(center, PAID, f"paid {number}")
        await ours.until(5)
        await shelved(message_store, 5)
        await all_settled(broker)
        assert ours.bodies == [f"paid {number}" for number in range(5)]

        await change(group, paused=False)
        await ours.until(10)
        await shelved(message_store, 0)
    assert ours.bodies[5:] == [f"refunded {number}" for number in range(5)]
    assert {message.attempt for message in ours.messages} == {1}


async def test_it_waits_for_whoever_serves_the_group_next(
    group: ConfigService, start_broker: StartBroker, message_store: MessageStore
) -> None:
    first = await start_broker()
    await change(group, paused=True)
    async with subscribed(first.address) as ours, MessageCenter(first.address) as center:
        await publish(center, REFUNDED, "one", "two")
        await publish(center, PAID, "paid")
        await ours.until(1)
        await shelved(message_store, 2)
    await first.shut_down()
    # Nobody is there to hear of it.
    await group.subscriptions.update("default", GROUP, TOPIC, REFUNDED, paused=False)
    second = await start_broker()
    async with subscribed(second.address) as ours:
        assert await ours.until(2) == ["one", "two"]
        await all_settled(second)


async def test_what_is_tried_again_waits_as_well_and_its_attempts_are_counted_on(
    group: ConfigService, broker: Broker, center: MessageCenter, message_store: MessageStore
) -> None:
    await group.subscriber_groups.update("default", GROUP, retry_schedule_seconds=(0.3, 0.3))

    async def fail(message: Message) -> None:
        if message.attempt == 1:
            raise ConnectionError("not yet")

    async with subscribed(broker.address, act=fail) as ours:
        await publish(center, REFUNDED, "one")
        await ours.until(1)
        await change(group, paused=True)
        await shelved(message_store, 1)
        assert len(ours.messages) == 1
        await change(group, paused=False)
        await ours.until(2)
    assert [message.attempt for message in ours.messages] == [1, 2]


async def test_what_waits_for_an_instance_is_not_handed_out_any_more(
    group: ConfigService, broker: Broker, center: MessageCenter, message_store: MessageStore
) -> None:
    await group.subscriber_groups.update("default", GROUP, unsettled_max=1)
    release = asyncio.Event()

    async def wait(message: Message) -> None:
        await release.wait()

    async with subscribed(broker.address, act=wait, concurrency=1) as ours:
        # Read at once, and handed out one by one.
        said = [OutgoingMessage(TOPIC, code, body, key="one") for code, body in ((PAID, "paid"), (REFUNDED, "one"))]
        await center.publish_many([*said, OutgoingMessage(TOPIC, REFUNDED, "two", key="one")])
        await ours.until(1)
        await eventually(lambda: any(owned.lane.ready_count for _, owned in broker.hub.lanes()), what="ready")
        await change(group, paused=True)
        release.set()
        await shelved(message_store, 2)
        await publish(center, PAID, "last")
        await ours.until(2)
        await all_settled(broker)
    assert ours.bodies == ["paid", "last"]


async def test_what_two_subscriptions_want_comes_as_long_as_one_of_them_goes_on(
    group: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    version = (await group.subscriptions.create("default", GROUP, TOPIC, "*")).version
    await group.wait_until_active(version)
    await change(group, paused=True)
    async with subscribed(broker.address) as ours:
        await publish(center, REFUNDED, "one")
        assert await ours.until(1) == ["one"]


async def test_what_waits_for_a_subscription_goes_with_it(
    group: ConfigService, broker: Broker, center: MessageCenter, message_store: MessageStore
) -> None:
    await change(group, paused=True)
    async with subscribed(broker.address) as ours:
        await publish(center, REFUNDED, "one")
        await shelved(message_store, 1)
        version = (await group.subscriptions.delete("default", GROUP, TOPIC, REFUNDED)).version
        await group.wait_until_active(version)
        await shelved(message_store, 0)
        await publish(center, PAID, "paid")
        await ours.until(1)
        await all_settled(broker)
    assert ours.bodies == ["paid"]


async def test_by_its_expression_a_paused_subscription_wants_some(
    group: ConfigService, broker: Broker, center: MessageCenter, message_store: MessageStore
) -> None:
    await change(group, expression='headers.region == "hz"', paused=True)
    async with subscribed(broker.address) as ours:
        await publish(center, REFUNDED, "sh", region="sh")
        await publish(center, REFUNDED, "hz", region="hz")
        await shelved(message_store, 1)
        await all_settled(broker)
        await change(group, paused=False)
        assert await ours.until(1) == ["hz"]
        await all_settled(broker)


async def test_at_the_cap_the_lane_waits_and_nothing_is_lost(
    group: ConfigService, broker: Broker, center: MessageCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("msgbroker.server.deliver.hub.lane_config", capped)
    monkeypatch.setattr("msgbroker.server.deliver.group.lane_config", capped)
    await change(group, paused=True)
    async with subscribed(broker.address) as ours:
        await publish(center, REFUNDED, *(f"refunded {number}" for number in range(30)))
        await publish(center, PAID, "paid")
        full = [owned for _, owned in broker.hub.lanes()]
        await eventually(lambda: any(owned.lane.has_redeliveries_full for owned in full), what="a full lane")
        assert ours.bodies == []
        await change(group, paused=False)
        await ours.until(31)
        await all_settled(broker)
    assert sorted(ours.bodies) == sorted(["paid", *(f"refunded {number}" for number in range(30))])


def capped(route: GroupRoute) -> LaneConfig:
    return dataclasses.replace(lane_config(route), redeliveries_max=10)


async def test_an_expression_is_changed_in_place_and_holds_for_what_is_read_from_then_on(
    group: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    async with subscribed(broker.address) as ours:
        await publish(center, REFUNDED, "before", region="sh")
        await ours.until(1)
        await change(group, expression='headers.region == "hz"')
        await publish(center, REFUNDED, "sh", region="sh")
        await publish(center, REFUNDED, "hz", region="hz")
        await ours.until(2)
        await change(group, mode=SubscriptionMode.DIRECT)
        await publish(center, REFUNDED, "sh again", region="sh")
        await ours.until(3)
        await all_settled(broker)
    assert ours.bodies == ["before", "hz", "sh again"]
    found = await group.subscriptions.get("default", GROUP, TOPIC, REFUNDED)
    assert (found.mode, found.expression, found.paused, found.requires) == (SubscriptionMode.DIRECT, None, False, ())
    entries = (await group.audit.list(WantedChanges(kinds=["subscription"], name=f"{GROUP} {TOPIC}/{REFUNDED}"))).items
    assert [entry.action for entry in entries] == ["subscription.update"] * 2 + ["subscription.create"]


async def test_what_cannot_be_changed_so_is_refused(group: ConfigService, broker: Broker) -> None:
    with pytest.raises(InvalidSettingError, match="DIRECT without"):
        await change(group, mode=SubscriptionMode.DIRECT, expression="true")
    with pytest.raises(InvalidSettingError, match="HEADER with"):
        await change(group, mode=SubscriptionMode.HEADER)
    with pytest.raises(SubscriptionNotFoundError):
        await change(group, "*", paused=True)


async def test_while_a_broker_of_an_earlier_version_runs_no_subscription_is_paused(
    group: ConfigService, start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(features, "UNDERSTOOD", features.UNDERSTOOD - {features.Feature.SUBSCRIPTION_PAUSED})
        await start_broker()

    with pytest.raises(FeatureNotEverywhereError, match="subscription-paused"):
        await change(group, paused=True)
    await change(group, paused=False)
