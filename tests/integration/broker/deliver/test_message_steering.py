"""One message that blocks a group is skipped, or tried again at once, while the group is served or not."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.client import Message, MessageCenter
from msgbroker.contract.errors import (
    GroupNotFoundError,
    InvalidSettingError,
    MessageStateError,
    SubscriptionNotFoundError,
    ThingNotFoundError,
)
from msgbroker.server.app import Broker
from msgconsole.operations.lanes.meant import WantedMessage
from msgconsole.operations.lanes.resetting import WantedReset, reset_group
from msgconsole.operations.lanes.steering import (
    Steer,
    SteerDone,
    SteerPlan,
    plan_steer,
    steer_message,
)
from msgconsole.operations.stores import Stores
from msgdb.acts import list_acts
from msgdb.lanes.lag import list_lag
from msgdb.lanes.steering import Standing
from msgdb.store import MessageStore
from tests.support.collecting import (
    GROUP,
    PAID,
    REFUNDED,
    TOPIC,
    all_settled,
    dead_letters,
    register_group,
    subscribed,
)
from tests.support.eventually import eventually


@pytest.fixture
async def stores(database_url: str, message_store: MessageStore) -> Any:
    async with ConfigStore.open(database_url) as config_store:
        yield Stores(config_store, message_store)


def wanted(message_id: UUID | None = None, **said: Any) -> WantedMessage:
    return WantedMessage(**{"namespace": "default", "group": GROUP, "message_id": message_id, **said})


async def steer(stores: Stores, message_id: UUID, what: Steer = Steer.SKIP, **said: Any) -> SteerDone:
    done = await steer_message(
        stores,
        wanted(message_id, **said),
        what,
        actor="ada",
        reason="why",
        wait_seconds=10.0,
        on_waiting=lambda brokers: None,
    )
    assert done.waiting_for == []
    return done


async def publish(center: MessageCenter, *bodies: str, event_code: str = PAID) -> list[UUID]:
    return [(await center.publish(TOPIC, event_code, body, key="one")).message_id for body in bodies]


async def until_stands(stores: Stores, message_id: UUID, standing: Standing, attempt: int) -> SteerPlan:
    """Return the plan once the message stands there, as it is stored."""

    async def look() -> SteerPlan | None:
        plan = await plan_steer(stores, wanted(message_id), Steer.SKIP)
        return plan if (plan.standing, plan.attempt) == (standing, attempt) else None

    found = await eventually(look, what=f"{standing}, attempt {attempt}")
    assert found is not None
    return found


async def reasons(trade: ConfigService, stores: Stores) -> list[tuple[str, str, int, str | None]]:
    letters = [(letter.summary, letter.body.decode()) for letter in await dead_letters(trade, stores.messages)]
    return [(body, letter.reason, letter.attempts, letter.last_error) for letter, body in letters]


class Failing:
    """Fails the messages with these bodies, until it is told otherwise."""

    def __init__(self, *bodies: str) -> None:
        self.bodies = set(bodies)

    async def __call__(self, message: Message) -> None:
        if message.body.decode() in self.bodies:
            raise ConnectionError("not yet")


async def test_a_message_that_waits_for_another_attempt_is_skipped(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade, retry_schedule_seconds=(60.0, 60.0))
    async with subscribed(broker.address, act=Failing("1")) as ours:
        _, blocking, _ = await publish(center, "0", "1", "2")
        await ours.until(3)
        plan = await until_stands(stores, blocking, Standing.WAITING, 2)
        assert (plan.topic, plan.event_code, plan.group) == (TOPIC, PAID, GROUP)
        assert plan.due_in_seconds is not None
        assert plan.due_in_seconds > 30

        done = await steer(stores, blocking)

        await publish(center, "3")
        await ours.until(4)
        await all_settled(broker)
    assert ours.bodies == ["0", "1", "2", "3"]
    assert await reasons(trade, stores) == [("1", "SKIPPED", 1, "ConnectionError: not yet")]
    async with stores.messages.connection() as conn:
        (act,) = await list_acts(conn)
    assert (act.action, act.namespace, act.actor, act.reason) == ("message.skip", "default", "ada", "why")
    assert act.thing == f"message {blocking} of group {GROUP}"
    assert act.detail == {
        "group_id": (await trade.subscriber_groups.get("default", GROUP)).group_id,
        "queue_id": plan.queue_id,
        "queue_offset": plan.queue_offset,
        "standing": "WAITING",
        "attempt": 2,
        "dead_letter_id": done.dead_letter_id,
    }


class Holding:
    """Holds one message until it is let go; all others pass."""

    def __init__(self, body: str) -> None:
        self.body = body
        self.begun, self.release = asyncio.Event(), asyncio.Event()

    async def __call__(self, message: Message) -> None:
        if message.body.decode() == self.body and not self.release.is_set():
            self.begun.set()
            await self.release.wait()


async def test_a_message_that_an_instance_hangs_with_is_skipped_and_what_that_says_counts_no_more(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade, ack_timeout_seconds=300.0)
    hanging = Holding("1")
    async with subscribed(broker.address, act=hanging, concurrency=1) as ours:
        _, blocking, _ = await publish(center, "0", "1", "2")
        await hanging.begun.wait()
        # That the first one is settled is stored: else it would come again as well.
        await eventually(lambda: _has_others(stores, blocking, 1), what="one other that may be in flight")

        await steer(stores, blocking)
        hanging.release.set()
        await ours.until(3)
        await all_settled(broker)

    # What was behind it came; what was skipped came no more.
    assert ours.bodies == ["0", "1", "2"]
    assert await reasons(trade, stores) == [("1", "SKIPPED", 0, None)]


async def _has_others(stores: Stores, message_id: UUID, count: int) -> bool:
    return (await plan_steer(stores, wanted(message_id), Steer.SKIP)).others == count


async def test_a_message_that_nobody_has_read_yet_is_skipped_where_no_instance_is(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    ids = await publish(center, *map(str, range(6)))

    done = await steer(stores, ids[4])

    assert (done.plan.standing, done.plan.others) == (Standing.UNSETTLED, 0)
    async with subscribed(broker.address) as ours:
        assert await ours.until(5) == ["0", "1", "2", "3", "5"]
        await all_settled(broker)
    assert await reasons(trade, stores) == [("4", "SKIPPED", 0, None)]


async def test_by_its_place_a_message_is_found_as_well(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    receipt = await center.publish(TOPIC, PAID, "0", key="one")
    place = wanted(queue_id=receipt.queue_id, queue_offset=receipt.queue_offset)

    plan = await plan_steer(stores, place, Steer.SKIP)

    assert plan.message_id == str(receipt.message_id)


async def test_a_message_that_waits_for_a_paused_subscription_is_skipped_and_cannot_be_hurried(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade, GROUP, PAID, REFUNDED)
    version = (await trade.subscriptions.update("default", GROUP, TOPIC, REFUNDED, paused=True)).version
    await trade.wait_until_active(version)
    (unread,) = await publish(center, "unread", event_code=REFUNDED)
    with pytest.raises(MessageStateError, match="only paused subscriptions"):
        await plan_steer(stores, wanted(unread), Steer.RETRY_NOW)
    async with subscribed(broker.address, event_code="*") as ours:
        (shelved,) = await publish(center, "shelved", event_code=REFUNDED)
        await until_stands(stores, shelved, Standing.SHELVED, 1)
        with pytest.raises(MessageStateError, match="only paused subscriptions"):
            await steer(stores, shelved, Steer.RETRY_NOW)

        await steer(stores, shelved)
        version = (await trade.subscriptions.update("default", GROUP, TOPIC, REFUNDED, paused=False)).version
        await trade.wait_until_active(version)
        await ours.until(1)
        await all_settled(broker)
    assert ours.bodies == ["unread"]
    assert [letter[:2] for letter in await reasons(trade, stores)] == [("shelved", "SKIPPED")]


async def test_the_next_attempt_of_a_message_that_waits_comes_at_once_and_its_attempts_count_on(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade, retry_schedule_seconds=(3_000.0, 3_000.0))
    failing = Failing("0", "1")
    async with subscribed(broker.address, act=failing) as ours:
        first, second = await publish(center, "0", "1")
        await ours.until(2)
        await until_stands(stores, first, Standing.WAITING, 2)
        await until_stands(stores, second, Standing.WAITING, 2)
        await steer(stores, first, Steer.RETRY_NOW)
        await ours.until(3)
        await until_stands(stores, first, Standing.WAITING, 3)
        failing.bodies.clear()
        await steer(stores, first, Steer.RETRY_NOW)
        await ours.until(4)
        with_rows = await eventually(lambda: _redeliveries(stores, 1), what="the other one alone waits")

    assert with_rows
    assert [(message.body, message.attempt) for message in ours.messages[2:]] == [(b"0", 2), (b"0", 3)]
    assert await reasons(trade, stores) == []


async def _redeliveries(stores: Stores, count: int) -> bool:
    async with stores.messages.connection() as conn:
        return sum(lag.redeliveries for lag in await list_lag(conn)) == count


async def test_a_message_that_an_instance_hangs_with_comes_again_to_another_one(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade, ack_timeout_seconds=300.0, unsettled_max=1)
    hanging = Holding("0")
    async with subscribed(broker.address, act=hanging, instance_id="one") as hung:
        (message_id,) = await publish(center, "0")
        await hanging.begun.wait()
        async with subscribed(broker.address, instance_id="two") as ours:
            await steer(stores, message_id, Steer.RETRY_NOW)
            await eventually(lambda: len(hung.messages) + len(ours.messages) >= 2, what="it came again")
            hanging.release.set()
            await all_settled(broker)
    assert {message.attempt for message in (*hung.messages, *ours.messages)} == {1}
    assert await reasons(trade, stores) == []


async def test_a_message_that_was_not_read_yet_overtakes_what_is_before_it(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    ids = await publish(center, *map(str, range(5)))

    await steer(stores, ids[3], Steer.RETRY_NOW)

    async with subscribed(broker.address, concurrency=1) as ours:
        assert await ours.until(5) == ["3", "0", "1", "2", "4"]
        await all_settled(broker)
    assert {message.attempt for message in ours.messages} == {1}


async def test_of_the_rows_with_one_id_the_one_that_the_group_has_not_settled_is_meant(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade, retry_schedule_seconds=(3_000.0,))
    async with subscribed(broker.address, act=Failing("1", "2")) as ours:
        first, second = await publish(center, "0", "1")
        await ours.until(2)
        await eventually(lambda: _is_settled(stores, first), what="the first one is settled")
        plan = await until_stands(stores, second, Standing.WAITING, 2)
        # As a redrive stores it: once more under its id.
        await rename(stores, second, first)
        found = await plan_steer(stores, wanted(first), Steer.SKIP)
        assert (found.queue_id, found.queue_offset) == (plan.queue_id, plan.queue_offset)

        (third,) = await publish(center, "2")
        await until_stands(stores, third, Standing.WAITING, 2)
        await rename(stores, third, first)
        with pytest.raises(InvalidSettingError, match=f"queue, offset: {plan.queue_id} 2, {plan.queue_id} 1$"):
            await plan_steer(stores, wanted(first), Steer.SKIP)


async def rename(stores: Stores, message_id: UUID, as_id: UUID) -> None:
    """Let a row of the log have another id."""
    async with stores.messages.connection() as conn:
        await conn.execute("UPDATE message SET message_id = %s WHERE message_id = %s", (as_id, message_id))


async def _is_settled(stores: Stores, message_id: UUID) -> bool:
    try:
        await plan_steer(stores, wanted(message_id), Steer.SKIP)
    except MessageStateError:
        return True
    return False


async def test_what_is_settled_is_refused_and_told_how_it_comes_again(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade, retry_schedule_seconds=())
    async with subscribed(broker.address, act=Failing("1")) as ours:
        done, dead = await publish(center, "0", "1")
        await ours.until(2)
        await all_settled(broker)
        await eventually(lambda: _is_settled(stores, dead), what="the dead letter is stored")
        await eventually(lambda: _is_settled(stores, done), what="it is settled")

    for what in Steer:
        with pytest.raises(MessageStateError, match=r"is SETTLED .* a replay"):
            await plan_steer(stores, wanted(done), what)
        with pytest.raises(MessageStateError, match=r"is DEAD_LETTER .* to redrive dead letter 1 "):
            await steer(stores, dead, what)
    async with stores.messages.connection() as conn:
        assert await list_acts(conn) == []


async def test_a_dead_letter_of_before_a_reset_is_not_what_became_of_the_message_since(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade, retry_schedule_seconds=())
    failing = Failing("0", "1")
    async with subscribed(broker.address, act=failing) as ours:
        acked, again = await publish(center, "0", "1")
        await ours.until(2)
        await all_settled(broker)
        for message_id in (acked, again):
            await eventually(partial(_is_settled, stores, message_id), what="it is a dead letter")
        failing.bodies.clear()
        await put_back(stores)
        await ours.until(4)
        await all_settled(broker)
        await eventually(lambda: _is_settled(stores, acked), what="it is settled")

    for what in Steer:
        with pytest.raises(MessageStateError) as refused:
            await plan_steer(stores, wanted(acked), what)
        assert "is SETTLED for group" in refused.value.message
        assert "dead letter 1 is of before the group was reset" in refused.value.message
        assert "a replay delivers it again" in refused.value.message
    await put_back(stores)
    done = await steer(stores, again)
    assert (done.dead_letter_id, done.is_earlier_letter) == (2, True)


async def put_back(stores: Stores) -> None:
    """Put the group back to the beginning."""
    back = WantedReset(namespace="default", group=GROUP, to_beginning=True)
    await reset_group(stores, back, actor="ada", reason="why", wait_seconds=10.0, on_waiting=lambda brokers: None)


async def test_what_the_group_does_not_ask_for_is_refused_unless_that_is_meant(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    (other,) = await publish(center, "other", event_code=REFUNDED)
    for what in Steer:
        with pytest.raises(MessageStateError, match="NOT_MATCHED"):
            await plan_steer(stores, wanted(other), what)

    await steer(stores, other, whatever_it_asks_for=True)

    assert [letter[:2] for letter in await reasons(trade, stores)] == [("other", "SKIPPED")]


@pytest.mark.parametrize(
    "said, error",
    [
        ({}, InvalidSettingError),
        ({"message_id": uuid4(), "queue_id": 1, "queue_offset": 1}, InvalidSettingError),
        ({"queue_id": 1}, InvalidSettingError),
        ({"message_id": uuid4()}, ThingNotFoundError),
        ({"queue_id": 1, "queue_offset": 10**9}, ThingNotFoundError),
        ({"message_id": uuid4(), "group": "SG_NOBODY"}, GroupNotFoundError),
    ],
)
async def test_what_cannot_be_is_refused(
    trade: ConfigService, stores: Stores, said: dict[str, Any], error: type[Exception]
) -> None:
    await register_group(trade)

    with pytest.raises(error):
        await plan_steer(stores, wanted(**said), Steer.SKIP)


async def test_a_group_that_does_not_subscribe_to_the_topic_has_no_such_message(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    (message_id,) = await publish(center, "0")
    await trade.wait_until_active((await trade.subscriber_groups.create("default", GROUP)).version)

    with pytest.raises(SubscriptionNotFoundError):
        await plan_steer(stores, wanted(message_id), Steer.SKIP)
