"""Two brokers on one database: who owns which lane, how one moves, and what a stale owner may do: nothing."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from confdb.services import ConfigService
from msgbroker.client import Message, MessageCenter, OutgoingMessage
from msgbroker.server.app import Broker
from msgbroker.v1 import subscriber_pb2
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from tests.support.broker_fixtures import LEASE_SECONDS, StartBroker
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
from tests.support.two_brokers import lanes, publish

QUEUES = 16


@pytest.fixture
async def wide_trade(config: ConfigService) -> ConfigService:
    """Return the services once TP_TRADE, of many queues, is registered."""
    await register_topic(config, queue_count=QUEUES)
    return config


@pytest.fixture
async def other(start_broker: StartBroker, broker: Broker) -> Broker:
    """Return a second broker on the same database."""
    return await start_broker()


@pytest.fixture
async def conn(message_store: MessageStore) -> AsyncIterator[Connection]:
    async with message_store.connection() as conn:
        yield conn


async def spread(broker: Broker, other: Broker, count: int = QUEUES) -> None:
    """Wait until both have lanes, and each lane has one owner."""
    await eventually(
        lambda: lanes(broker) and lanes(other) and len(lanes(broker)) + len(lanes(other)) == count,
        what="the lanes are spread",
    )


def numbers(*collected: Collected) -> list[int]:
    return sorted(int(body) for one in collected for body in one.bodies)


async def test_the_lanes_of_a_group_are_spread_over_the_brokers_that_have_instances(
    wide_trade: ConfigService, broker: Broker, other: Broker
) -> None:
    await register_group(wide_trade)
    async with subscribed(broker.address) as here, subscribed(other.address) as there:
        await spread(broker, other)
        assert not lanes(broker) & lanes(other)
        # What is published through one broker reaches the instances of both.
        await publish(broker.address, 500)
        await eventually(lambda: len(here.messages) + len(there.messages) >= 500)

    assert numbers(here, there) == list(range(500))
    assert here.messages
    assert there.messages


async def test_what_is_published_through_another_broker_arrives_without_waiting_for_a_poll(
    wide_trade: ConfigService, broker: Broker, other: Broker
) -> None:
    await register_group(wide_trade)
    async with subscribed(other.address) as there, MessageCenter(broker.address) as center:
        await eventually(lambda: len(lanes(other)) == QUEUES)
        await eventually(broker.cluster.heartbeats.groups_at_others)
        loop = asyncio.get_running_loop()
        waits = []
        for number in range(10):
            await center.publish(TOPIC, PAID, str(number), key=str(number))
            stored_at = loop.time()
            await there.until(number + 1)
            waits.append(loop.time() - stored_at)

    assert sorted(waits)[len(waits) // 2] < 0.2


async def test_lanes_move_to_a_broker_that_joins_without_a_duplicate_or_a_loss(
    wide_trade: ConfigService, broker: Broker, start_broker: StartBroker
) -> None:
    await register_group(wide_trade)

    async def slowly(_: Message) -> None:
        # Something is always in flight when a lane moves.
        await asyncio.sleep(0.01)

    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(subscribed(broker.address, act=slowly, concurrency=32))
        await eventually(lambda: len(lanes(broker)) == QUEUES)
        publishing = asyncio.create_task(publish(broker.address, 2_000))
        await here.until(200)
        other = await start_broker()
        there = await stack.enter_async_context(subscribed(other.address, act=slowly, concurrency=32))
        await spread(broker, other)
        await publishing
        await publish(other.address, 500, first=2_000)
        await eventually(lambda: len(here.messages) + len(there.messages) >= 2_500, 20)

    assert numbers(here, there) == list(range(2_500))
    assert there.messages


async def test_a_broker_that_leaves_gives_its_lanes_to_the_other_without_a_duplicate(
    wide_trade: ConfigService, broker: Broker, other: Broker, conn: Connection
) -> None:
    await register_group(wide_trade)
    both = [broker.address, other.address]
    async with subscribed(both) as one, subscribed(both[::-1]) as two:  # type: ignore[arg-type]
        await spread(broker, other)
        await publish(broker.address, 500)
        publishing = asyncio.create_task(publish(broker.address, 1_000, first=500))
        await other.shut_down()
        owners = await (await conn.execute("SELECT DISTINCT owner FROM cursor WHERE owner IS NOT NULL")).fetchall()
        assert owners in ([], [(broker.cluster.heartbeats.identity.broker_id,)])
        await publishing
        await eventually(lambda: len(one.messages) + len(two.messages) >= 1_500)
        await eventually(lambda: len(lanes(broker)) == QUEUES)

    assert numbers(one, two) == list(range(1_500))


async def test_a_stolen_lane_is_stopped_and_nothing_of_its_old_owner_is_persisted(
    trade: ConfigService, broker: Broker, conn: Connection
) -> None:
    await register_group(trade)
    async with raw_subscriber(broker.address) as raw:
        await eventually(lambda: len(lanes(broker)) == 4)
        async with MessageCenter(broker.address) as center:
            await center.publish_many([OutgoingMessage(TOPIC, PAID, str(n), key="one queue") for n in range(10)])
        given = await raw.until(10)
        queue_id, epoch = given[0].queue_id, given[0].epoch
        thief = uuid.uuid4()
        await conn.execute(
            "UPDATE cursor SET owner = %s, epoch = epoch + 1, lease_until = clock_timestamp() + interval '1 hour'"
            " WHERE queue_id = %s",
            (thief, queue_id),
        )
        await raw.settle(*given[:5])
        await raw.settle(given[5], verdict=subscriber_pb2.VERDICT_REJECT)

        await eventually(lambda: queue_id not in lanes(broker))
        await eventually(lambda: any(r.queue_id == queue_id for told in raw.told for r in told.revoked))
        row = await (
            await conn.execute("SELECT owner, epoch, acked_offset FROM cursor WHERE queue_id = %s", (queue_id,))
        ).fetchone()
        assert row == (thief, epoch + 1, 0)
        assert await (await conn.execute("SELECT count(*) FROM dead_letter")).fetchone() == (0,)

        # The thief dies: the lane comes back under a new epoch, and with it all that was not persisted.
        await conn.execute("UPDATE cursor SET lease_until = clock_timestamp() WHERE queue_id = %s", (queue_id,))
        again = (await raw.until(20))[10:]
        assert {one.epoch for one in again} == {epoch + 2}
        assert [one.delivery.queue_offset for one in again] == list(range(10))


async def test_a_lane_whose_lease_cannot_be_renewed_is_stopped_before_it_has_passed(
    trade: ConfigService, broker: Broker, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_group(trade)
    async with raw_subscriber(broker.address) as raw:
        await eventually(lambda: len(lanes(broker)) == 4)
        await publish(broker.address, 1)
        (given,) = await raw.until(1)

        async def nothing(*_: object) -> None:
            return

        monkeypatch.setattr(broker.cluster.ownership._renewal, "renew_if_due", nothing)
        monkeypatch.setattr(broker.cluster.ownership._claims, "claim_missing", nothing)
        await eventually(lambda: not lanes(broker), LEASE_SECONDS + 1)
        row = await (await conn.execute("SELECT bool_and(lease_until > clock_timestamp()) FROM cursor")).fetchone()

        assert row == (True,)
        revoked = await eventually(lambda: [r for told in raw.told for r in told.revoked])
        assert [(one.queue_id, one.epoch) for one in revoked] == [(given.queue_id, given.epoch)]


async def test_an_instance_whose_broker_has_no_lane_for_it_is_told_where_they_are(
    config: ConfigService, broker: Broker, other: Broker
) -> None:
    await register_topic(config, queue_count=1)
    await register_group(config)
    async with raw_subscriber(broker.address, instance_id="a") as a:
        await eventually(lambda: lanes(broker))
        async with raw_subscriber(other.address, instance_id="b") as b:
            # The one queue's lane belongs to one of the two; the other broker's instance must move.
            told = await eventually(
                lambda: [(raw, t.relocation) for raw in (a, b) for t in raw.told if t.HasField("relocation")], 15
            )

    (raw, relocation) = told[0]
    assert list(relocation.addresses) == [other.address if raw is a else broker.address]


async def test_a_client_that_is_sent_elsewhere_gets_its_share_there(
    config: ConfigService, broker: Broker, other: Broker
) -> None:
    await register_topic(config, queue_count=1)
    await register_group(config)
    async with subscribed(broker.address) as one, subscribed(other.address) as two:

        def all_at_one_broker() -> bool:
            counts = [len(g.instances) for b in (broker, other) for g in b.hub.groups.values() if g.instances]
            return counts == [2] and bool(lanes(broker) or lanes(other))

        await eventually(all_at_one_broker, 20)
        await publish(broker.address, 500)
        await eventually(lambda: len(one.messages) + len(two.messages) >= 500)

    assert numbers(one, two) == list(range(500))
    assert one.messages
    assert two.messages


async def test_two_brokers_append_to_the_same_queues_without_a_gap(
    trade: ConfigService, broker: Broker, other: Broker, conn: Connection
) -> None:
    await asyncio.gather(publish(broker.address, 1_000), publish(other.address, 1_000, first=1_000))

    rows = await conn.execute("SELECT queue_id, count(*), max(queue_offset) + 1 FROM message GROUP BY queue_id")
    for _, count, end in await rows.fetchall():
        assert count == end
    assert await (await conn.execute("SELECT count(*), count(DISTINCT body) FROM message")).fetchone() == (2_000, 2_000)


async def test_a_registration_is_active_once_every_broker_routes_by_it(
    trade: ConfigService, broker: Broker, other: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_group(trade, "SG_FIRST")

    assert broker.feed.current.version == other.feed.current.version
    assert ("default", "SG_FIRST") in broker.feed.current.groups
    assert ("default", "SG_FIRST") in other.feed.current.groups
    assert GROUP not in [name for _, name in broker.feed.current.groups]


async def test_a_false_announcement_ends_nothing_and_delivers_nothing_again(
    trade: ConfigService, broker: Broker, message_store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_group(trade)
    heard: list[int] = []
    hint_end = broker.hub.cache.hint_end

    def hear(queue_id: int, end: int) -> bool:
        heard.append(end)
        return hint_end(queue_id, end)

    monkeypatch.setattr(broker.hub.cache, "hint_end", hear)
    async with subscribed(broker.address) as got:
        async with MessageCenter(broker.address) as center:
            await center.publish_many([OutgoingMessage(TOPIC, PAID, str(number)) for number in range(200)])
        await got.until(200)
        await all_settled(broker)
        cache, queues = broker.hub.cache, broker.hub.queues_read()
        ends = {queue_id: cache.end_of(queue_id) for queue_id in queues}
        payloads = ["²:1", "", *(f"{queue_id}:{end}" for queue_id in queues for end in (10**17, 1))]
        async with message_store.connection() as conn:
            for payload in payloads:
                await conn.execute("SELECT pg_notify('msgcenter_appended', %s)", (payload,))
        await eventually(lambda: len(heard) >= 2 * len(queues), what="heard")
        await eventually(
            lambda: all(cache.may_reach(queue_id) == ends[queue_id] for queue_id in queues), what="looked up"
        )
        await all_settled(broker)

        assert len(got.messages) == 200
        assert broker.hub.counters.ends_lost == 0
        async with MessageCenter(broker.address) as center:
            await center.publish(TOPIC, PAID, "on it goes")
        await got.until(201)
