"""What a broker does not understand of the configuration it does not serve, says so, and goes on with the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from confdb.services import ConfigService
from msgbroker.client import MessageCenter, OutgoingMessage
from msgbroker.contract.errors import NotUnderstoodError
from msgbroker.server.app import Broker
from msgbroker.v1 import message_pb2, publisher_pb2, publisher_pb2_grpc, subscriber_pb2, subscriber_pb2_grpc
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.by_hand import (
    LEASE_SECONDS,
    OF_GROUP,
    OF_SUBSCRIPTION,
    OF_TOPIC,
    ByHand,
    alarmed,
    by_hand,
    not_alarmed,
    routed,
    standing,
)
from tests.support.collecting import (
    GROUP,
    PAID,
    TOPIC,
    Collected,
    all_settled,
    register_group,
    register_topic,
    subscribed,
)
from tests.support.eventually import eventually
from tests.support.raw_streams import raw_subscriber

OTHER_TOPIC = "TP_STOCK"
OTHER_GROUP = "SG_AUDIT"


@pytest.fixture
async def broker(start_broker: StartBroker) -> Broker:
    """Return a broker on the test's database."""
    return await start_broker(lease_seconds=LEASE_SECONDS)


async def publish(center: MessageCenter, *bodies: str, topic: str = TOPIC) -> None:
    answers = await center.publish_many([OutgoingMessage(topic, PAID, body) for body in bodies])
    assert not [answer for answer in answers if isinstance(answer, Exception)]


@asynccontextmanager
async def subscribed_to_both(address: str) -> AsyncIterator[Collected]:
    """Run an instance of the group that handles both topics."""
    collected = Collected()
    async with MessageCenter(address, drain_timeout_seconds=2.0) as center:
        for topic in (TOPIC, OTHER_TOPIC):
            center.subscriber(group=GROUP, topic=topic)(collected.handle)
        await center.start()
        yield collected


async def refusal_of(address: str, call: str) -> dict[str, Any]:
    """Return what the broker says to a Subscribe or a Pull of the group."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = subscriber_pb2_grpc.SubscriberStub(channel)
        if call == "Pull":
            answer = stub.Pull(subscriber_pb2.PullRequest(group=GROUP, instance_id="one"))
        else:
            stream = stub.Subscribe()
            hello = subscriber_pb2.SubscriberHello(group=GROUP, instance_id="one")
            await stream.write(subscriber_pb2.SubscribeRequest(hello=hello, credit=10))
            answer = stream.read()
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await asyncio.wait_for(answer, 10)
    reason = dict(raised.value.trailing_metadata() or ())["msgcenter-reason"]
    return {"status": raised.value.code().name, "reason": reason, "message": raised.value.details()}


async def progress(store: MessageStore, group_id: int) -> list[tuple[Any, ...]]:
    """Return where the group's cursors are, and who has them."""
    async with store.connection() as connection:
        cursor = await connection.execute(
            "SELECT queue_id, acked_offset, acked_ranges::text, owner FROM cursor WHERE group_id = %s ORDER BY 1",
            (group_id,),
        )
        return await cursor.fetchall()


async def group_id_of(config: ConfigService) -> int:
    return (await config.subscriber_groups.get("default", GROUP)).group_id


@pytest.mark.parametrize("made", OF_GROUP.values(), ids=OF_GROUP)
async def test_a_group_that_is_not_understood_waits_and_gets_everything_once_it_is_mended(
    made: ByHand, trade: ConfigService, broker: Broker, message_store: MessageStore, database_url: str
) -> None:
    await register_group(trade)
    await register_group(trade, OTHER_GROUP)
    group_id = await group_id_of(trade)
    await routed(await by_hand(database_url, *made.change), broker)
    async with subscribed(broker.address, OTHER_GROUP) as other, MessageCenter(broker.address) as center:
        for call in ("Subscribe", "Pull"):
            refused = await refusal_of(broker.address, call)
            assert (refused["status"], refused["reason"]) == ("UNAVAILABLE", "NOT_UNDERSTOOD")
            assert all(word in refused["message"] for word in (GROUP, made.says, "0.1.0")), refused
        await publish(center, "1", "2", "3")
        assert sorted(await other.until(3)) == ["1", "2", "3"]
        alarm = await alarmed(message_store, made.says)
        assert (alarm.group_id, alarm.topic_id) == (group_id, None)
        assert GROUP in alarm.thing
        assert await progress(message_store, group_id) == []

        await routed(await by_hand(database_url, *made.mending), broker)
        await not_alarmed(message_store)
        async with subscribed(broker.address) as got:
            await publish(center, "4")
            assert sorted(await got.until(4)) == ["1", "2", "3", "4"]
            await all_settled(broker)
    assert len(got.messages) == 4


@pytest.mark.parametrize("made", [*OF_TOPIC.values(), *OF_SUBSCRIPTION.values()], ids=[*OF_TOPIC, *OF_SUBSCRIPTION])
async def test_where_one_topic_of_a_group_is_not_understood_the_others_are_served(
    made: ByHand, trade: ConfigService, broker: Broker, message_store: MessageStore, database_url: str
) -> None:
    await register_topic(trade, OTHER_TOPIC)
    await register_group(trade)
    await trade.subscriptions.create("default", GROUP, OTHER_TOPIC, PAID)
    async with MessageCenter(broker.address) as center:
        await publish(center, "1", "2", "3")
        version = await by_hand(database_url, *made.change)
        await routed(version, broker)
        async with subscribed_to_both(broker.address) as got:
            await publish(center, "other", topic=OTHER_TOPIC)
            assert await got.until(1) == ["other"]
            alarm = await alarmed(message_store, made.says)
            topic_id = (await trade.topics.get("default", TOPIC)).topic_id
            assert alarm.topic_id == topic_id
            assert {owned.topic.topic_id for _, owned in broker.hub.lanes()} == {
                (await trade.topics.get("default", OTHER_TOPIC)).topic_id
            }

            await routed(await by_hand(database_url, *made.mending), broker)
            await not_alarmed(message_store)
            assert sorted(await got.until(4)) == ["1", "2", "3", "other"]
            await publish(center, "4")
            await got.until(5)
            await all_settled(broker)
    assert len(got.messages) == 5


SERVED_GROUPS = ("order KEY", "unknown order", "mode BROADCAST", "required feature", "broken schedule")


@pytest.mark.parametrize("made", [OF_GROUP[name] for name in SERVED_GROUPS], ids=SERVED_GROUPS)
async def test_a_group_that_is_served_and_not_understood_any_more_is_given_up_in_good_order(
    made: ByHand, trade: ConfigService, broker: Broker, message_store: MessageStore, database_url: str
) -> None:
    await register_group(trade)
    group_id = await group_id_of(trade)
    async with MessageCenter(broker.address) as center, raw_subscriber(broker.address) as raw:
        await publish(center, "1", "2", "3")
        given = await raw.until(3)
        await raw.settle(*given[:2])
        await routed(await by_hand(database_url, *made.change), broker)
        await eventually(lambda: any(told.draining for told in raw.told), what="told to go elsewhere")
        await publish(center, "4", "5")
        # What it holds is still its own, and its verdict counts; then the lanes are free for others.
        assert not raw.has_ended
        await raw.settle(given[2])
        await eventually(lambda: raw.has_ended, what="the end of the stream")
        assert raw.ended is not None
        assert raw.ended.code() is grpc.StatusCode.UNAVAILABLE
        assert dict(raw.ended.trailing_metadata() or ())["msgcenter-reason"] == "NOT_UNDERSTOOD"
        assert {owner for *_, owner in await progress(message_store, group_id)} == {None}
        assert sorted(raw.bodies) == ["1", "2", "3"]
        await alarmed(message_store, made.says)

        await routed(await by_hand(database_url, *made.mending), broker)
        async with subscribed(broker.address) as got:
            assert sorted(await got.until(2)) == ["4", "5"]
            await all_settled(broker)
        await not_alarmed(message_store)
    assert len(got.messages) == 2


async def test_a_pull_that_waits_ends_when_its_group_is_not_understood_any_more(
    trade: ConfigService, broker: Broker, database_url: str
) -> None:
    await register_group(trade)
    made = OF_GROUP["order KEY"]
    async with grpc.aio.insecure_channel(broker.address) as channel, MessageCenter(broker.address) as center:
        stub: Any = subscriber_pb2_grpc.SubscriberStub(channel)
        request = subscriber_pb2.PullRequest(group=GROUP, instance_id="one", wait_ms=30_000)
        await publish(center, "1")
        (pulled,) = (await stub.Pull(request)).messages
        waiting = asyncio.ensure_future(stub.Pull(request))
        await routed(await by_hand(database_url, *made.change), broker)
        settled = await stub.Settle(
            subscriber_pb2.SettleRequest(
                group=GROUP, instance_id="one", receipts=[pulled.receipt], verdict=subscriber_pb2.VERDICT_ACK
            )
        )
        assert (settled.settled, settled.stale) == (1, 0)
        assert not (await asyncio.wait_for(waiting, 10)).messages
        assert (await refusal_of(broker.address, "Pull"))["reason"] == "NOT_UNDERSTOOD"

        await routed(await by_hand(database_url, *made.mending), broker)
        await publish(center, "2")
        (again,) = (await stub.Pull(request)).messages
    assert again.delivery.message.body == b"2"


SERVED_TOPICS = {
    name: (OF_TOPIC | OF_SUBSCRIPTION)[name]
    for name in (
        "topic kind ORDERED",
        "unknown topic kind",
        "expression that does not compile",
        "offset beyond all bounds",
        "required feature of the subscription",
    )
}


@pytest.mark.parametrize("made", SERVED_TOPICS.values(), ids=SERVED_TOPICS)
async def test_a_topic_that_is_served_and_not_understood_any_more_is_given_up_and_the_others_go_on(
    made: ByHand, trade: ConfigService, broker: Broker, message_store: MessageStore, database_url: str
) -> None:
    await register_topic(trade, OTHER_TOPIC)
    await register_group(trade)
    version = (await trade.subscriptions.create("default", GROUP, OTHER_TOPIC, PAID)).version
    await routed(version, broker)
    topic_id = (await trade.topics.get("default", TOPIC)).topic_id
    async with MessageCenter(broker.address) as center, raw_subscriber(broker.address) as raw:
        await publish(center, "1", "2", "3")
        given = await raw.until(3)
        await raw.settle(*given[:2])
        await routed(await by_hand(database_url, *made.change), broker)
        await publish(center, "other", topic=OTHER_TOPIC)
        await raw.until(4)
        await raw.settle(given[2], raw.given[3])

        def topics_served() -> set[int]:
            return {owned.topic.topic_id for _, owned in broker.hub.lanes()}

        await eventually(lambda: topic_id not in topics_served(), what="the lanes are given up")
        await alarmed(message_store, made.says)
        assert topics_served()
        assert not raw.has_ended
        assert not any(told.draining for told in raw.told)

        await routed(await by_hand(database_url, *made.mending), broker)
        await publish(center, "4", "5")
        again = await raw.until(6)
        await raw.settle(*again[4:])
        await all_settled(broker)
        await not_alarmed(message_store)
    assert sorted(raw.bodies) == ["1", "2", "3", "4", "5", "other"]


@pytest.mark.parametrize("made", OF_TOPIC.values(), ids=OF_TOPIC)
async def test_publishing_to_a_topic_that_is_not_understood_is_refused_for_now(
    made: ByHand, trade: ConfigService, broker: Broker, database_url: str
) -> None:
    await register_topic(trade, OTHER_TOPIC)
    await routed(await by_hand(database_url, *made.change), broker)
    messages = [message_pb2.Message(topic=topic, event_code=PAID, body=b"x") for topic in (TOPIC, OTHER_TOPIC)]
    async with MessageCenter(broker.address) as center, grpc.aio.insecure_channel(broker.address) as channel:
        stub: Any = publisher_pb2_grpc.PublisherStub(channel)
        result = await stub.Publish(publisher_pb2.PublishRequest(messages=messages))
        (refused,) = result.refusals
        assert refused.index == 0
        assert (refused.refusal.reason, refused.refusal.status) == ("NOT_UNDERSTOOD", "UNAVAILABLE")
        assert refused.refusal.retryable
        assert dict(refused.refusal.facts).keys() == {"thing", "detail", "feature", "version"}
        assert all(word in refused.refusal.message for word in (TOPIC, made.says, "0.1.0"))
        # The neighbour is stored.
        assert [bool(queue_id) for queue_id in result.queue_ids] == [False, True]
        with pytest.raises(NotUnderstoodError) as raised:
            await center.publish(TOPIC, PAID, "x")
        assert raised.value.retryable

        await routed(await by_hand(database_url, *made.mending), broker)
        await center.publish(TOPIC, PAID, "x")


async def test_a_message_that_an_unknown_rule_may_mark_as_stress_traffic_is_refused_for_now(
    trade: ConfigService, broker: Broker, message_store: MessageStore, database_url: str
) -> None:
    await trade.stress.add_rule("default", "x-load", value="yes")
    unknown = (
        "ALTER TABLE stress_rule DROP CONSTRAINT stress_rule_operator_check",
        "UPDATE stress_rule SET operator = 'MATCHES' WHERE header = 'x-load'",
    )
    await routed(await by_hand(database_url, *unknown), broker)
    async with MessageCenter(broker.address) as center:
        await center.publish(TOPIC, PAID, "x", headers={"region": "hz"})
        for value in ("yes", "no"):
            with pytest.raises(NotUnderstoodError, match="stress-operator-matches"):
                await center.publish(TOPIC, PAID, "x", headers={"x-load": value})
        # It is stress traffic by a rule that is understood.
        await center.publish(TOPIC, PAID, "x", headers={"x-load": "yes", "x-stress-test": "true"})
        await alarmed(message_store, "stress-operator-matches")

        mending = "UPDATE stress_rule SET operator = 'EXISTS', value = '' WHERE header = 'x-load'"
        await routed(await by_hand(database_url, mending), broker)
        await center.publish(TOPIC, PAID, "x", headers={"x-load": "no"})
    async with message_store.connection() as connection:
        stored = await connection.execute("SELECT stress, count(*) FROM message GROUP BY 1 ORDER BY 1")
        assert await stored.fetchall() == [(False, 1), (True, 2)]


async def test_a_whitelist_entry_that_cannot_be_read_allows_nothing_and_is_told_of(
    trade: ConfigService, broker: Broker, message_store: MessageStore, database_url: str
) -> None:
    await register_group(trade)
    await trade.stress.allow("default", GROUP, TOPIC, PAID)
    await routed(await by_hand(database_url, "UPDATE stress_whitelist SET event_code = 'EC_[A-Z]+'"), broker)
    alarm = await alarmed(message_store, "allows nothing")
    assert alarm.group_id == await group_id_of(trade)
    async with subscribed(broker.address) as got, MessageCenter(broker.address) as center:
        await center.publish(TOPIC, PAID, "stress", headers={"x-stress-test": "true"})
        await publish(center, "1")
        assert await got.until(1) == ["1"]
        await all_settled(broker)


async def test_nothing_is_lost_or_doubled_while_things_cease_to_be_understood_and_are_again(
    trade: ConfigService, broker: Broker, message_store: MessageStore, database_url: str
) -> None:
    await register_group(trade)
    of_group, of_topic = OF_GROUP["order KEY"], OF_SUBSCRIPTION["expression that does not compile"]
    async with subscribed(broker.address) as got, MessageCenter(broker.address) as center:
        for number in range(20):
            made = of_topic if number % 3 else of_group
            # Some are mended before the broker has looked, some while it gives the lanes up, some after that.
            await by_hand(database_url, *made.change)
            await publish(center, *(f"{number}-{part}" for part in range(10)))
            if number % 4 == 0:
                await alarmed(message_store, made.says)
            await by_hand(database_url, *made.mending)
            await publish(center, f"{number}-10")
        wanted = sorted(f"{number}-{part}" for number in range(20) for part in range(11))
        await got.until(len(wanted), 30)
        await all_settled(broker)
        await not_alarmed(message_store)
    assert sorted(got.bodies) == wanted


@asynccontextmanager
async def cluster_held_up(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Let the broker take and leave no lanes for the length of the block, as when the store is slow."""
    may_go_on = asyncio.Event()
    is_waiting = asyncio.Event()
    step_once = broker.cluster.ownership.step_once

    async def step_later() -> None:
        is_waiting.set()
        await may_go_on.wait()
        await step_once()

    monkeypatch.setattr(broker.cluster.ownership, "step_once", step_later)
    await is_waiting.wait()
    try:
        yield
    finally:
        may_go_on.set()


AT_ONCE = {
    "order KEY": OF_GROUP["order KEY"],
    **{name: SERVED_TOPICS[name] for name in ("topic kind ORDERED", "expression that does not compile")},
}


@pytest.mark.parametrize("made", AT_ONCE.values(), ids=AT_ONCE)
async def test_nothing_is_read_by_a_configuration_that_is_not_understood_though_the_lanes_are_still_here(
    made: ByHand, trade: ConfigService, broker: Broker, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_group(trade)
    async with subscribed(broker.address) as got, MessageCenter(broker.address) as center:
        await publish(center, "1")
        await got.until(1)
        lanes = [owned for _, owned in broker.hub.lanes()]
        async with cluster_held_up(broker, monkeypatch):
            await publish(center, *(str(number) for number in range(2, 50)))
            await routed(await by_hand(database_url, *made.change), broker)
            reached = {owned.lane.key.queue_id: owned.lane.next_offset for owned in lanes}
            last = 50 if made in OF_TOPIC.values() else 100
            if last > 50:
                await publish(center, *(str(number) for number in range(50, last)))
            # Two turns of the event loop hand out what there is.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert {owned.lane.key.queue_id: owned.lane.next_offset for owned in lanes} == reached
            await routed(await by_hand(database_url, *made.mending), broker)
            await publish(center, str(last))
            # Understood again, before anybody has looked: these lanes are stopped for good, and claimed anew.
        await got.until(last)
        await all_settled(broker)
    assert sorted(map(int, got.bodies)) == [*range(1, last + 1)]


async def test_a_broker_starts_with_a_configuration_it_does_not_understand_all_of(
    config: ConfigService, start_broker: StartBroker, message_store: MessageStore, database_url: str
) -> None:
    await register_topic(config)
    await register_topic(config, OTHER_TOPIC)
    await register_group(config)
    await register_group(config, OTHER_GROUP, topic=OTHER_TOPIC)
    changes = [OF_GROUP["unknown order"], OF_TOPIC["unknown topic kind"], OF_SUBSCRIPTION["offset beyond all bounds"]]
    for made in changes:
        await by_hand(database_url, *made.change)
    broker = await start_broker()
    async with subscribed(broker.address, OTHER_GROUP, topic=OTHER_TOPIC) as got:
        async with MessageCenter(broker.address) as center:
            await publish(center, "1", topic=OTHER_TOPIC)
        assert await got.until(1) == ["1"]
    assert (await refusal_of(broker.address, "Subscribe"))["reason"] == "NOT_UNDERSTOOD"
    for made in changes:
        await alarmed(message_store, made.says)
    assert len(await standing(message_store)) == len(changes)


async def test_health_tells_that_something_is_not_understood_and_an_instance_what_it_will_not_get(
    trade: ConfigService, broker: Broker, message_store: MessageStore, database_url: str
) -> None:
    await register_group(trade)
    made = OF_SUBSCRIPTION["expression that does not compile"]

    async def health(service: str) -> int:
        async with grpc.aio.insecure_channel(broker.address) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            return int((await stub.Check(health_pb2.HealthCheckRequest(service=service))).status)

    await routed(await by_hand(database_url, *made.change), broker)
    await alarmed(message_store, made.says)
    not_serving = health_pb2.HealthCheckResponse.NOT_SERVING
    await eventually(lambda: _is(health("alarms"), not_serving))
    assert await health("") == health_pb2.HealthCheckResponse.SERVING
    async with grpc.aio.insecure_channel(broker.address) as channel:
        stream = subscriber_pb2_grpc.SubscriberStub(channel).Subscribe()
        handled = [subscriber_pb2.MessageType(topic=TOPIC, event_code=PAID)]
        hello = subscriber_pb2.SubscriberHello(group=GROUP, instance_id="one", handled=handled)
        await stream.write(subscriber_pb2.SubscribeRequest(hello=hello, credit=10))
        (missing,) = (await stream.read()).attached.missing
        stream.cancel()
    assert missing.reason == "NOT_UNDERSTOOD"

    await routed(await by_hand(database_url, *made.mending), broker)
    await eventually(lambda: _is(health("alarms"), health_pb2.HealthCheckResponse.SERVING))
    await not_alarmed(message_store)


async def _is(asked: Any, wanted: int) -> bool:
    return bool(await asked == wanted)
