"""Waiting until a group is empty, and what it is said to wait for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.client import Message, MessageCenter
from msgbroker.contract.errors import GroupNotFoundError, SubscriptionNotFoundError, TopicNotFoundError
from msgbroker.server.app import Broker
from msgconsole.operations.lanes.draining import Drain, drain_group
from msgconsole.operations.stores import Stores
from msgdb.store import MessageStore
from tests.support.collecting import GROUP, PAID, REFUNDED, TOPIC, register_group, subscribed
from tests.support.eventually import eventually


@pytest.fixture
async def stores(database_url: str, message_store: MessageStore) -> Any:
    async with ConfigStore.open(database_url) as config_store:
        yield Stores(config_store, message_store)


async def publish(center: MessageCenter, *bodies: str, event_code: str = PAID) -> None:
    for body in bodies:
        await center.publish(TOPIC, event_code, body, key="one")


async def look(stores: Stores, topic: str | None = None) -> Drain:
    """Return how far the group is, without waiting."""
    return await drain_group(stores, "default", GROUP, topic, timeout_seconds=0, on_progress=lambda drained: None)


class Following:
    """A drain under way, and what it tells."""

    def __init__(self, stores: Stores) -> None:
        self.told: list[Drain] = []
        self.task = asyncio.create_task(drain_group(stores, "default", GROUP, on_progress=self.told.append))

    async def until_told(self, unsettled: int, of_what: str = "") -> Drain:
        def find() -> Drain | None:
            last = self.told[-1] if self.told else None
            return last if last and last.unsettled == unsettled and of_what in "; ".join(last.waits_for) else None

        found = await eventually(find, what=f"{unsettled} left")
        assert found is not None
        return found


async def test_a_group_is_empty_once_all_is_settled_that_was_stored_when_the_wait_began(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    held, release = asyncio.Event(), asyncio.Event()

    async def wait(message: Message) -> None:
        if message.body == b"2":
            held.set()
            await release.wait()
        elif message.body == b"later":
            await asyncio.Event().wait()

    await publish(center, "0", "1", "2")
    draining = Following(stores)
    assert (await draining.until_told(3)).waits_for == [
        "no broker serves these queues: is an instance of the group connected?"
    ]
    async with subscribed(broker.address, act=wait):
        await held.wait()
        assert (await draining.until_told(1)).waits_for == []
        # Published since: nobody waits for it.
        await publish(center, "later")
        release.set()
        drained = await draining.task
        assert (drained.is_empty, drained.unsettled, drained.waits_for) == (True, 0, [])
        assert not (await look(stores)).is_empty


async def test_what_waits_for_another_attempt_is_waited_for(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade, retry_schedule_seconds=(1.0, 1.0))
    failures = iter([True, True])

    async def fail(message: Message) -> None:
        if next(failures, False):
            raise ConnectionError("not yet")

    async with subscribed(broker.address, act=fail) as ours:
        await publish(center, "0")
        draining = Following(stores)
        await draining.until_told(1, "1 message waits for another attempt: the next is due in 1 s")
        assert (await draining.task).is_empty
        assert len(ours.messages) == 3


async def test_a_pause_is_what_it_waits_for_until_the_group_goes_on(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    async with subscribed(broker.address) as ours:
        await trade.wait_until_active((await trade.subscriber_groups.update("default", GROUP, paused=True)).version)
        await publish(center, "0", "1")
        draining = Following(stores)
        assert (await draining.until_told(2)).waits_for == ["the group is paused until it is resumed"]
        await trade.subscriber_groups.update("default", GROUP, paused=False)
        assert (await draining.task).is_empty
        assert ours.bodies == ["0", "1"]


async def test_what_a_paused_subscription_wants_is_waited_for_by_its_name(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade, GROUP, PAID, REFUNDED)
    update = trade.subscriptions.update
    await trade.wait_until_active((await update("default", GROUP, TOPIC, REFUNDED, paused=True)).version)
    async with subscribed(broker.address, event_code="*"):
        await publish(center, "0", event_code=REFUNDED)
        draining = Following(stores)
        await draining.until_told(1, f"1 message waits for paused subscriptions ({REFUNDED})")
        await update("default", GROUP, TOPIC, REFUNDED, paused=False)
        assert (await draining.task).is_empty


async def test_a_group_that_nothing_is_stored_for_is_empty(trade: ConfigService, stores: Stores) -> None:
    await register_group(trade)

    assert (await look(stores)).is_empty


async def test_one_topic_alone_may_be_meant(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await trade.topics.create("default", "TP_OTHER", queue_count=1)
    version = (await trade.event_codes.add("default", "TP_OTHER", PAID)).version
    await trade.wait_until_active(version)
    await register_group(trade)
    await trade.wait_until_active((await trade.subscriptions.create("default", GROUP, "TP_OTHER", PAID)).version)
    await center.publish("TP_OTHER", PAID, "other")

    assert (await look(stores, TOPIC)).is_empty
    assert (await look(stores, "TP_OTHER")).unsettled == (await look(stores)).unsettled == 1


async def test_a_group_that_is_deleted_meanwhile_ends_the_wait(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    await publish(center, "0")
    draining = Following(stores)
    await draining.until_told(1)
    await trade.subscriber_groups.delete("default", GROUP)

    with pytest.raises(GroupNotFoundError):
        await draining.task


async def test_what_is_not_registered_is_refused(trade: ConfigService, stores: Stores) -> None:
    with pytest.raises(GroupNotFoundError):
        await look(stores)
    await register_group(trade)
    await trade.topics.create("default", "TP_OTHER")
    with pytest.raises(TopicNotFoundError):
        await look(stores, "TP_NONE")
    with pytest.raises(SubscriptionNotFoundError):
        await look(stores, "TP_OTHER")
