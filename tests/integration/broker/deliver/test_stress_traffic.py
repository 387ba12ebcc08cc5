"""Stress-test traffic never reaches a group that is not on the whitelist at the moment of hand-out."""

from __future__ import annotations

import asyncio

import pytest

from confdb.services import ConfigService
from msgbroker.client import Message, MessageCenter, Release, RetryAfter, StressRefusedError
from msgbroker.server.app import Broker
from tests.support.collecting import GROUP, PAID, TOPIC, all_settled, register_group, subscribed
from tests.support.eventually import eventually
from tests.support.stress import STRESS, WHITELISTED, allow, disallow


async def test_stress_messages_reach_whitelisted_groups_only(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade, GROUP)
    await register_group(trade, WHITELISTED)
    await allow(trade)
    async with subscribed(broker.address) as got, subscribed(broker.address, WHITELISTED) as whitelisted:
        for number in range(10):
            await center.publish(TOPIC, PAID, str(number), headers=STRESS if number % 2 else {"x-stress-test": "no"})
        await whitelisted.until(10)
        await got.until(5)
        await all_settled(broker)

    assert [message.stress for message in sorted(whitelisted.messages, key=lambda m: m.body)] == [False, True] * 5
    assert sorted(got.bodies) == ["0", "2", "4", "6", "8"]


async def test_a_group_taken_off_the_whitelist_is_handed_no_more(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade, WHITELISTED)
    await allow(trade)
    async with subscribed(broker.address, WHITELISTED) as got:
        await center.publish(TOPIC, PAID, "allowed", headers=STRESS)
        await got.until(1)
        await disallow(trade)
        await center.publish(TOPIC, PAID, "denied", headers=STRESS)
        await center.publish(TOPIC, PAID, "normal")
        await got.until(2)
        await all_settled(broker)

    assert got.bodies == ["allowed", "normal"]


async def test_a_message_read_before_the_whitelist_changed_is_denied_at_hand_out(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade, WHITELISTED)
    await allow(trade)
    go_on = asyncio.Event()

    async def wait(_: Message) -> None:
        await go_on.wait()

    async with subscribed(broker.address, WHITELISTED, act=wait, credit=1, concurrency=1) as got:
        for number in range(5):
            # One queue: the lane has read them all when the first is with the handler.
            await center.publish(TOPIC, PAID, str(number), headers=STRESS, key="k")
        await got.until(1)
        await disallow(trade)
        go_on.set()
        await center.publish(TOPIC, PAID, "normal", key="k")
        await got.until(2)
        await all_settled(broker)

    assert got.bodies == ["0", "normal"]


@pytest.mark.parametrize("answer", [RetryAfter(0.5), Release(0.5)], ids=["retry", "release"])
async def test_a_message_that_comes_again_is_denied_once_the_group_is_off_the_whitelist(
    trade: ConfigService, broker: Broker, center: MessageCenter, answer: Exception
) -> None:
    await register_group(trade, WHITELISTED)
    await allow(trade)

    async def fail(message: Message) -> None:
        if message.stress:
            await disallow(trade)
            raise answer

    async with subscribed(broker.address, WHITELISTED, act=fail) as got:
        await center.publish(TOPIC, PAID, "stress", headers=STRESS)
        await got.until(1)
        await center.publish(TOPIC, PAID, "normal")
        await got.until(2)
        await all_settled(broker)
        lanes = [owned.lane for _, owned in broker.hub.lanes()]
        await eventually(lambda: sum(lane.redelivery_count for lane in lanes) == 0)

    assert got.bodies == ["stress", "normal"]


async def test_the_kill_switch_refuses_new_stress_messages_and_settles_stored_ones(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade, WHITELISTED)
    await allow(trade)
    await center.publish(TOPIC, PAID, "stored before", headers=STRESS)
    switched = await trade.topics.update("default", TOPIC, stress_refused=True)
    await trade.wait_until_active(switched.version)

    with pytest.raises(StressRefusedError, match=TOPIC):
        await center.publish(TOPIC, PAID, "new", headers=STRESS)
    async with subscribed(broker.address, WHITELISTED) as got:
        await center.publish(TOPIC, PAID, "normal")
        await got.until(1)
        await all_settled(broker)

    assert got.bodies == ["normal"]


async def test_a_rule_added_marks_what_is_published_from_then_on(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade, GROUP)
    added = await trade.stress.add_rule("default", "tenant", value="load-test")
    await trade.wait_until_active(added.version)
    async with subscribed(broker.address) as got:
        await center.publish(TOPIC, PAID, "stress", headers={"tenant": "load-test"})
        await center.publish(TOPIC, PAID, "normal", headers={"tenant": "customer"})
        await got.until(1)
        await all_settled(broker)

    assert got.bodies == ["normal"]
