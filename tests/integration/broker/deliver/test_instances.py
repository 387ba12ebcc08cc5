"""Instances of a group: their credit, and what happens to them when the configuration changes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc
import pytest

from confdb.services import ConfigService
from msgbroker.client import GroupNotFoundError, MessageCenter, OutgoingMessage, TopicNotFoundError
from msgbroker.server.app import Broker
from msgbroker.v1 import subscriber_pb2
from msgdb.store import MessageStore
from tests.support.collecting import (
    GROUP,
    PAID,
    TOPIC,
    Collected,
    all_settled,
    register_group,
    subscribed,
)
from tests.support.eventually import eventually
from tests.support.raw_streams import raw_subscriber


async def publish(center: MessageCenter, count: int, first: int = 0) -> None:
    await center.publish_many([OutgoingMessage(TOPIC, PAID, str(number)) for number in range(first, first + count)])


def unsettled(broker: Broker) -> list[int]:
    return [instance.unsettled for group in broker.hub.groups.values() for instance in group.instances.values()]


async def test_an_instance_is_given_no_more_than_its_credit(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade)
    async with raw_subscriber(broker.address, credit=7) as raw:
        await publish(center, 100)
        await raw.until(7)
        await raw.settle(*raw.given[:3])
        await raw.until(10)
        await raw.send(credit=20)
        await raw.until(23)
        assert unsettled(broker) == [20]
        await raw.send(credit=1)
        await raw.settle(*raw.given[3:])
        await raw.until(24)
        assert unsettled(broker) == [1]

    assert len({(given.queue_id, given.delivery.queue_offset) for given in raw.given}) == 24


async def test_credit_is_cut_to_what_the_group_allows(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade, unsettled_max=5)
    async with raw_subscriber(broker.address, credit=10_000) as raw:
        await publish(center, 50)
        await raw.until(5)
        await raw.send(credit=1_000)
        await raw.settle(*raw.given)
        await raw.until(10)

        assert raw.told[0].attached.unsettled_max == 5
        assert unsettled(broker) == [5]


async def test_an_instance_hears_of_a_changed_ack_timeout_before_what_is_given_by_it(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade)
    async with raw_subscriber(broker.address) as subscriber:
        await eventually(lambda: subscriber.told)
        changed = await trade.subscriber_groups.update("default", GROUP, ack_timeout_seconds=2)
        await trade.wait_until_active(changed.version)
        await publish(center, 1)
        await subscriber.until(1)

    told = [response.attached.ack_timeout_ms for response in subscriber.told if response.HasField("attached")]
    assert told == [60_000, 2_000]
    assert subscriber.told[-1].batches


@pytest.mark.parametrize("before, then", [(100, 5), (2, 5)])
async def test_what_the_group_allows_is_obeyed_by_those_who_are_attached_as_soon_as_it_is_changed(
    trade: ConfigService, broker: Broker, center: MessageCenter, before: int, then: int
) -> None:
    await register_group(trade, unsettled_max=before)
    async with raw_subscriber(broker.address, credit=100) as raw:
        await eventually(lambda: any(len(group.lanes) == 4 for group in broker.hub.groups.values()))
        changed = await trade.subscriber_groups.update("default", GROUP, unsettled_max=then)
        await trade.wait_until_active(changed.version)
        await publish(center, 50)
        await raw.until(then)
        await raw.settle(*raw.given)
        await raw.until(2 * then)

        assert unsettled(broker) == [then]


async def test_an_instance_that_names_no_credit_has_what_the_group_allows(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade, unsettled_max=5)
    async with raw_subscriber(broker.address, credit=0) as raw:
        await publish(center, 50)
        await raw.until(5)

        assert unsettled(broker) == [5]


async def test_an_instance_that_paused_is_given_nothing_until_it_resumes(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade)
    async with raw_subscriber(broker.address) as paused, subscribed(broker.address) as other:
        await paused.send(pause=True)
        await eventually(lambda: any(i.is_paused for g in broker.hub.groups.values() for i in g.instances.values()))
        await publish(center, 50)
        await other.until(50)
        assert paused.given == []
        await paused.send(resume=True)
        await publish(center, 500, first=50)
        await eventually(lambda: paused.given)


async def test_a_paused_group_is_given_nothing_and_everything_once_it_goes_on(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade)
    await register_group(trade, "SG_OTHER")
    paused = await trade.subscriber_groups.update("default", GROUP, paused=True)
    await trade.wait_until_active(paused.version)
    async with subscribed(broker.address) as got, subscribed(broker.address, "SG_OTHER") as other:
        await publish(center, 100)
        await other.until(100)
        assert got.messages == []
        await trade.subscriber_groups.update("default", GROUP, paused=False)
        await got.until(100)
        await all_settled(broker)

    assert sorted(map(int, got.bodies)) == list(range(100))


async def test_a_verdict_on_what_was_not_given_changes_nothing(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade)
    async with raw_subscriber(broker.address, credit=1) as raw:
        for number in range(2):
            await center.publish(TOPIC, PAID, str(number), key="k")
        (given,) = await raw.until(1)
        delivery = subscriber_pb2.Delivery(queue_offset=1)
        await raw.settle(given._replace(delivery=delivery))
        await raw.settle(given._replace(epoch=given.epoch + 1))
        await raw.settle(given._replace(queue_id=given.queue_id + 1_000))
        other_attempt = subscriber_pb2.Delivery(queue_offset=0, attempt=2)
        await raw.settle(given._replace(delivery=other_attempt))
        # Requests are carried out in their order: the last one shows that those before it were.
        await raw.send(credit=2)
        await raw.until(2)
        lane = next(iter(broker.hub.groups.values())).lanes[given.queue_id].lane

        assert raw.bodies == ["0", "1"]
        assert lane.acked_offset == 0
        assert lane.in_flight_count == 2


@pytest.mark.parametrize(
    "settlement, field",
    [
        ({"ranges": [1]}, "ranges"),
        ({"ranges": [5, 3]}, "ranges"),
        ({"ranges": [3, 4, 1, 2]}, "ascend"),
        ({"ranges": [1, 5, 5, 6]}, "overlap"),
        ({"ranges": [0, 1 << 63]}, "1000000"),
        ({"ranges": [0, 1_000_000]}, "1000000"),
        ({"ranges": [0, 0], "verdict": 0}, "verdict"),
        ({"ranges": [0, 0], "verdict": 2, "delay_ms": 8 * 86_400_000}, "delay_ms"),
        ({"ranges": [offset for n in range(10_001) for offset in (n, n)]}, "ranges"),
    ],
)
async def test_a_malformed_settlement_ends_the_stream_with_its_reason(
    trade: ConfigService, broker: Broker, settlement: dict[str, object], field: str
) -> None:
    await register_group(trade)
    async with raw_subscriber(broker.address) as raw:
        await eventually(lambda: raw.told)
        values = {"queue_id": 1, "epoch": 1, "attempt": 1, "verdict": 1, **settlement}
        await raw.send(settlements=[subscriber_pb2.Settlement(**values)])  # type: ignore[arg-type]
        await eventually(lambda: raw.has_ended)

    assert raw.ended is not None
    assert raw.ended.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert dict(raw.ended.trailing_metadata() or ())["msgcenter-reason"] == "INVALID_FIELD"
    assert field in (raw.ended.details() or "")


async def test_the_same_instance_again_takes_the_place_of_its_old_stream(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade)
    async with raw_subscriber(broker.address, instance_id="one") as old:
        await publish(center, 10)
        await old.until(10)
        async with raw_subscriber(broker.address, instance_id="one") as new:
            await eventually(lambda: old.has_ended)
            await new.until(10)

            assert len([i for group in broker.hub.groups.values() for i in group.instances]) == 1


async def test_subscribing_to_a_group_that_is_not_registered_is_refused_by_name(
    trade: ConfigService, broker: Broker
) -> None:
    with pytest.raises(GroupNotFoundError, match="SG_NOBODY"):
        async with subscribed(broker.address, "SG_NOBODY"):
            raise AssertionError("it was attached")


async def test_deleting_a_group_ends_its_streams_and_gives_up_its_lanes(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade)
    collected = Collected()
    async with MessageCenter(broker.address) as subscriber:
        subscriber.subscriber(group=GROUP, topic=TOPIC)(collected.handle)
        running = asyncio.create_task(subscriber.run())
        await center.publish(TOPIC, PAID, "a")
        await collected.until(1)
        await trade.subscriber_groups.delete("default", GROUP)

        with pytest.raises(GroupNotFoundError, match=GROUP):
            async with asyncio.timeout(5):
                await running
    await eventually(lambda: not broker.hub.groups)


async def test_a_group_made_again_under_its_old_name_is_another_group(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade)
    await center.publish(TOPIC, PAID, "for the old one")
    await trade.subscriber_groups.delete("default", GROUP)
    await register_group(trade)
    async with subscribed(broker.address) as got:
        await center.publish(TOPIC, PAID, "for the new one")
        await got.until(1)
        await all_settled(broker)

    assert got.bodies == ["for the new one"]


async def test_unsubscribing_ends_delivery_and_a_topic_can_then_be_deleted(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade)
    async with subscribed(broker.address) as got:
        await center.publish(TOPIC, PAID, "a")
        await got.until(1)
        await trade.subscriptions.delete("default", GROUP, TOPIC, PAID)
        deleted = await trade.topics.delete("default", TOPIC)
        await trade.wait_until_active(deleted.version)

        with pytest.raises(TopicNotFoundError, match=TOPIC):
            await center.publish(TOPIC, PAID, "b")
        await eventually(lambda: not any(group.lanes for group in broker.hub.groups.values()))
    assert got.bodies == ["a"]


async def test_an_instance_that_is_gone_before_its_lanes_are_claimed_leaves_none_behind(
    trade: ConfigService,
    broker: Broker,
    center: MessageCenter,
    message_store: MessageStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await register_group(trade)
    refresh_ends = broker.hub.cache.refresh_ends
    async with raw_subscriber(broker.address) as leaving:

        async def leave_meanwhile(queue_ids: Sequence[int]) -> None:
            monkeypatch.undo()
            await leaving.vanish()
            await eventually(lambda: not broker.hub.groups)
            await refresh_ends(queue_ids)

        monkeypatch.setattr(broker.hub.cache, "refresh_ends", leave_meanwhile)
        await eventually(lambda: leaving.has_ended)

        async def is_given_up() -> bool:
            async with message_store.connection() as conn:
                rows = await (await conn.execute("SELECT owner FROM cursor")).fetchall()
            return rows == [(None,)] * 4

        await eventually(is_given_up)
    assert broker.hub.queues_read() == []
    async with subscribed(broker.address) as got:
        await publish(center, 100)
        await got.until(100)


async def test_queues_added_to_a_topic_are_delivered_with_what_was_in_the_old_ones(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade)
    await publish(center, 100)
    updated = await trade.topics.update("default", TOPIC, queue_count=7)
    await trade.wait_until_active(updated.version)
    receipts = [await center.publish(TOPIC, PAID, str(number), key=str(number)) for number in range(100, 200)]
    async with subscribed(broker.address) as got:
        await got.until(200)
        await all_settled(broker)

    assert sorted(map(int, got.bodies)) == list(range(200))
    assert len({receipt.queue_id for receipt in receipts}) == 7


@pytest.mark.parametrize("says_goodbye, attempt", [(True, 1), (False, 2)])
async def test_only_who_pauses_before_the_end_leaves_without_an_attempt_that_counts(
    trade: ConfigService, broker: Broker, center: MessageCenter, *, says_goodbye: bool, attempt: int
) -> None:
    await register_group(trade)
    async with raw_subscriber(broker.address, instance_id="leaving", credit=1) as leaving:
        await publish(center, 1)
        await leaving.until(1)
        if says_goodbye:
            await leaving.send(pause=True)
        await leaving.leave()

    async with raw_subscriber(broker.address, instance_id="next") as following:
        (given,) = await following.until(1)

    assert (given.delivery.attempt or 1) == attempt
