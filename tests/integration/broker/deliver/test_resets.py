"""Groups that are put somewhere else while their instances are connected, or not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from confdb import features
from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.client import Message, MessageCenter
from msgbroker.contract.errors import (
    FeatureNotEverywhereError,
    GroupNotFoundError,
    InvalidSettingError,
    SubscriptionNotFoundError,
    ThingNotFoundError,
    TopicNotFoundError,
)
from msgbroker.server.app import Broker
from msgconsole.operations.lanes.resetting import QueueReset, ResetDone, WantedReset, plan_reset, reset_group
from msgconsole.operations.replays.replay import WantedReplay, replay
from msgconsole.operations.stores import Stores
from msgdb.acts import list_acts
from msgdb.postgres.connections import Connection
from msgdb.postgres.history import History, get_history
from msgdb.store import MessageStore
from tests.support.broker_fixtures import LEASE_SECONDS, StartBroker
from tests.support.collecting import GROUP, PAID, REFUNDED, TOPIC, all_settled, register_group, subscribed
from tests.support.eventually import eventually
from tests.support.jobs import ended
from tests.support.stress import STRESS


@pytest.fixture
async def stores(database_url: str, message_store: MessageStore) -> Any:
    async with ConfigStore.open(database_url) as config_store:
        yield Stores(config_store, message_store)


def wanted(**said: Any) -> WantedReset:
    return WantedReset(**{"namespace": "default", "group": GROUP, **said})


async def reset(stores: Stores, wait_seconds: float = 10.0, **said: Any) -> ResetDone:
    return await reset_group(
        stores,
        wanted(**said),
        actor="ada",
        reason="why",
        wait_seconds=wait_seconds,
        on_waiting=lambda brokers: None,
    )


def summed(planned: Sequence[QueueReset]) -> tuple[int, ...]:
    return tuple(sum(getattr(each, name) for each in planned) for name in ("skipped", "again", "matching"))


async def until_planned(
    stores: Stores, expected: tuple[int, int, int], *, waiting: int = 0, **said: Any
) -> Sequence[QueueReset]:
    """Return the plan once it is as expected, with so many skipped that wait for another attempt.

    What instances say is persisted a moment later.
    """

    async def plan() -> Sequence[QueueReset] | None:
        planned = await plan_reset(stores, wanted(**said))
        is_expected = summed(planned) == expected and sum(each.waiting_skipped for each in planned) == waiting
        return planned if is_expected else None

    found = await eventually(plan, what=f"a plan of {expected}")
    assert found is not None
    return found


async def publish(center: MessageCenter, count: int, first: int = 0, event_code: str = PAID, key: str = "one") -> None:
    for number in range(first, first + count):
        await center.publish(TOPIC, event_code, str(number), key=key)


async def test_a_group_goes_back_to_the_beginning_while_it_is_served(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await publish(center, 3)
    await register_group(trade)
    async with subscribed(broker.address) as ours:
        await publish(center, 5, 3)
        await ours.until(5)
        await all_settled(broker)
        planned = await until_planned(stores, (0, 8, 8), to_beginning=True)

        done = await reset(stores, to_beginning=True)

        # Also from before its subscription began.
        assert done.queues == planned
        assert done.waiting_for == []
        bodies = await ours.until(13)
    assert bodies[5:] == [str(number) for number in range(8)]
    async with stores.messages.connection() as conn:
        (act,) = await list_acts(conn)
    assert (act.action, act.thing, act.actor, act.reason) == ("group.reset", f"group {GROUP}", "ada", "why")
    assert act.namespace == "default"
    assert act.detail is not None
    assert (act.detail["skipped"], act.detail["again"]) == (0, 8)


async def test_a_reset_says_what_it_did_and_not_what_was_planned_before_the_group_went_on(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_group(trade)
    await publish(center, 5)
    await until_planned(stores, (5, 0, 5), to_end=True)

    async def settle_all(conn: Connection) -> History:
        async with subscribed(broker.address) as ours:
            await ours.until(5)
            await all_settled(broker)
            await until_planned(stores, (0, 0, 0), to_end=True)
        return await get_history(conn)

    monkeypatch.setattr("msgconsole.operations.lanes.resetting.get_history", settle_all)

    done = await reset(stores, to_end=True)

    assert summed(done.queues) == (0, 0, 0)
    assert [each.from_offset for each in done.queues] == [each.to_offset for each in done.queues]
    # What was counted was of before.
    assert sorted({each.is_exact for each in done.queues}) == [False, True]
    async with stores.messages.connection() as conn:
        (act,) = await list_acts(conn)
    assert act.detail is not None
    assert (act.detail["skipped"], act.detail["again"]) == (0, 0)


async def test_what_was_stored_once_more_for_the_group_comes_again_as_well(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    for group in (GROUP, "SG_OTHER"):
        await register_group(trade, group)
    async with subscribed(broker.address) as ours, subscribed(broker.address, "SG_OTHER") as others:
        await publish(center, 3)
        for number, group in enumerate([GROUP, "SG_OTHER"]):
            begun = await replay(
                stores, WantedReplay(namespace="default", group=group, topic=TOPIC), actor="ada", reason="why"
            )
            await ended(stores, begun.job_id)
            await (ours, others)[number].until(6)
        await ours.until(6)
        await all_settled(broker)
        planned = await until_planned(stores, (0, 9, 6), to_beginning=True)
        assert sum(each.copies for each in planned) == 3

        await reset(stores, to_beginning=True)
        bodies = await ours.until(12)
        await all_settled(broker)

    assert bodies[6:] == ["0", "1", "2"] * 2
    assert len(ours.bodies) == 12


async def test_stress_messages_that_the_group_may_not_see_are_not_among_those_that_match(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    await publish(center, 2)
    await center.publish(TOPIC, PAID, "2", headers=STRESS)

    planned = await plan_reset(stores, wanted(to_end=True))

    assert summed(planned) == (3, 0, 2)


async def test_what_is_skipped_is_handed_out_to_nobody_once_it_is_acknowledged(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade, unsettled_max=2)
    release = asyncio.Event()

    async def wait(message: Message) -> None:
        await release.wait()

    async with subscribed(broker.address, act=wait, concurrency=1) as ours:
        await publish(center, 20)
        await ours.until(1)
        done = await reset(stores, to_end=True)
        assert sum(each.skipped for each in done.queues) == 20
        release.set()
        await publish(center, 2, 100)
        await eventually(lambda: ours.bodies[-1:] == ["101"], what="what came after it")
        await all_settled(broker)

    # What was begun is finished; what it says of it is stale, and settles nothing.
    assert ours.bodies == ["0", "100", "101"]


async def test_what_was_in_flight_comes_again_where_it_lies_behind_the_new_place(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    begun, release = asyncio.Event(), asyncio.Event()

    async def wait(message: Message) -> None:
        begun.set()
        await release.wait()

    async with subscribed(broker.address, act=wait, concurrency=1) as ours:
        await publish(center, 3)
        await begun.wait()
        planned = await plan_reset(stores, wanted(to_beginning=True))
        assert summed(planned) == (0, 0, 0)
        await reset(stores, to_beginning=True)
        release.set()
        assert await ours.until(4) == ["0", "0", "1", "2"]
        await all_settled(broker)


async def test_each_queue_goes_to_where_it_was_at_a_time(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    async with subscribed(broker.address) as ours:
        for number in range(40):
            await center.publish(TOPIC, PAID, f"before {number}", key=str(number))
        async with stores.messages.connection() as conn:
            row = await (await conn.execute("SELECT clock_timestamp()")).fetchone()
        assert row is not None
        for number in range(40):
            await center.publish(TOPIC, PAID, f"after {number}", key=str(number))
        await ours.until(80)
        await all_settled(broker)
        at: datetime = row[0].astimezone(UTC)
        await until_planned(stores, (0, 40, 40), to_time=at)
        await reset(stores, to_time=at)
        await ours.until(120)
        await all_settled(broker)

    assert sorted(ours.bodies[80:]) == sorted(f"after {number}" for number in range(40))


async def test_a_subscription_that_came_later_begins_where_it_began(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await publish(center, 2)
    await publish(center, 2, 10, REFUNDED)
    await register_group(trade)
    await reset(stores, to_beginning=True)
    version = (await trade.subscriptions.create("default", GROUP, TOPIC, REFUNDED)).version
    await trade.wait_until_active(version)
    await publish(center, 1, 20, REFUNDED)

    async with subscribed(broker.address) as ours:
        await ours.until(3)
        await all_settled(broker)

    assert ours.bodies == ["0", "1", "20"]


async def test_a_group_that_nobody_serves_is_where_it_was_put_when_somebody_comes(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    await publish(center, 5)
    queue_id, to_offset = await queue_of(stores)
    done = await reset(stores, to_offset=to_offset - 2, queue_id=queue_id)

    assert [(each.queue_id, each.skipped) for each in done.queues] == [(queue_id, 3)]
    async with subscribed(broker.address) as ours:
        await publish(center, 1, 5)
        await ours.until(3)
        await all_settled(broker)
    assert ours.bodies == ["3", "4", "5"]


async def test_what_waits_for_another_attempt_is_skipped_or_begins_anew(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade, retry_schedule_seconds=(60.0, 60.0))

    async def fail(message: Message) -> None:
        if len(ours.messages) <= 4:
            raise ConnectionError("not yet")

    async with subscribed(broker.address, act=fail) as ours:
        await publish(center, 4)
        await ours.until(4)
        await until_planned(stores, (4, 0, 4), waiting=4, to_end=True)
        planned = await plan_reset(stores, wanted(to_beginning=True))
        assert (summed(planned), sum(each.waiting_anew for each in planned)) == ((0, 0, 0), 4)
        await reset(stores, to_beginning=True)
        assert await ours.until(8) == ["0", "1", "2", "3"] * 2
        assert {message.attempt for message in ours.messages} == {1}


async def test_only_the_topic_that_is_meant_changes(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await trade.topics.create("default", "TP_OTHER", queue_count=1)
    await trade.event_codes.add("default", "TP_OTHER", PAID)
    await register_group(trade)
    version = (await trade.subscriptions.create("default", GROUP, "TP_OTHER", PAID)).version
    await trade.wait_until_active(version)
    await publish(center, 2)
    await center.publish("TP_OTHER", PAID, "other")

    planned = await plan_reset(stores, wanted(to_end=True))
    assert {each.topic: each.skipped for each in planned if each.skipped} == {TOPIC: 2, "TP_OTHER": 1}
    done = await reset(stores, to_end=True, topic="TP_OTHER")
    assert [(each.topic, each.skipped) for each in done.queues] == [("TP_OTHER", 1)]
    async with subscribed(broker.address) as ours:
        assert await ours.until(2) == ["0", "1"]
        await all_settled(broker)


@pytest.mark.parametrize(
    "said, error",
    [
        ({}, InvalidSettingError),
        ({"to_end": True, "to_beginning": True}, InvalidSettingError),
        ({"to_offset": 3}, InvalidSettingError),
        ({"to_offset": 3, "queue_id": 10**9}, ThingNotFoundError),
        ({"to_end": True, "group": "SG_NOBODY"}, GroupNotFoundError),
        ({"to_end": True, "topic": "TP_NONE"}, TopicNotFoundError),
        ({"to_end": True, "topic": "TP_OTHER"}, SubscriptionNotFoundError),
    ],
)
async def test_what_cannot_be_is_refused(
    trade: ConfigService, stores: Stores, said: dict[str, Any], error: type[Exception]
) -> None:
    await trade.topics.create("default", "TP_OTHER")
    await register_group(trade)

    with pytest.raises(error):
        await plan_reset(stores, wanted(**said))


async def test_beyond_its_ends_a_queue_has_no_place(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    await publish(center, 2)
    queue_id, end = await queue_of(stores)

    for offset in (-1, end + 1):
        with pytest.raises(InvalidSettingError, match=f"must be 0 to {end}"):
            await reset(stores, to_offset=offset, queue_id=queue_id)


async def test_while_a_broker_of_an_earlier_version_runs_nothing_is_reset(
    trade: ConfigService, start_broker: StartBroker, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_group(trade)
    with monkeypatch.context() as earlier:
        earlier.setattr(features, "UNDERSTOOD", features.UNDERSTOOD - {features.Feature.RESETS})
        await start_broker()

    with pytest.raises(FeatureNotEverywhereError, match="resets"):
        await reset(stores, to_end=True)


async def test_lanes_of_a_broker_that_is_gone_are_waited_for_by_its_address(
    trade: ConfigService, start_broker: StartBroker, stores: Stores
) -> None:
    broker = await start_broker()
    await register_group(trade)
    told: list[str] = []
    async with subscribed(broker.address) as ours, MessageCenter(broker.address) as center:
        await publish(center, 1)
        await ours.until(1)
        # It hears of nothing any more, and renews nothing.
        for task in broker._running:
            if task.get_name() in {"cluster", "checkpoints", "ticks"}:
                task.cancel()
        done = await reset_group(
            stores,
            wanted(to_end=True),
            actor="ada",
            reason="why",
            wait_seconds=LEASE_SECONDS + 5,
            on_waiting=told.extend,
        )

    assert done.waiting_for == []
    assert set(told) == {broker.address}
    broker._running.clear()


async def queue_of(stores: Stores) -> tuple[int, int]:
    """Return the queue that has messages, and where it ends."""
    async with stores.messages.connection() as conn:
        row = await (
            await conn.execute("SELECT queue_id, max(queue_offset) + 1 FROM message GROUP BY queue_id")
        ).fetchone()
    assert row is not None
    return row[0], row[1]
