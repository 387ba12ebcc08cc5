"""Two brokers of which one does not understand everything: whoever does serves it, and both agree on who that is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from confdb import features, route_rows
from confdb.expressions.compiled import compile_expression
from confdb.services import ConfigService
from msgbroker.client import Message, MessageCenter, OutgoingMessage
from msgbroker.contract.errors import InvalidExpressionError
from msgbroker.server.app import Broker
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.by_hand import LEASE_SECONDS, alarmed, by_hand, not_alarmed, routed, standing
from tests.support.collecting import GROUP, PAID, TOPIC, Collected, register_group, register_topic
from tests.support.eventually import eventually

# So many that no chance leaves a broker without its share.
QUEUES = 16
OTHER_TOPIC = "TP_STOCK"
GROUP_REQUIRES = "UPDATE subscriber_group SET requires = '{colour}'"
TOPIC_REQUIRES = f"UPDATE topic SET requires = '{{colour}}' WHERE name = '{TOPIC}'"

StartNewer = Callable[[], Awaitable[Broker]]


@pytest.fixture
async def broker(start_broker: StartBroker) -> Broker:
    """Return a broker of this version."""
    return await start_broker(lease_seconds=LEASE_SECONDS)


@pytest.fixture
def start_newer(start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> StartNewer:
    """Return a function that starts a broker that understands one feature more."""

    async def start() -> Broker:
        with monkeypatch.context() as patched:
            patched.setattr(features, "UNDERSTOOD", frozenset({"colour"}))
            return await start_broker(lease_seconds=LEASE_SECONDS)

    return start


@pytest.fixture
async def wide_trade(config: ConfigService) -> ConfigService:
    """Return the services once two topics of many queues are registered, and a group that subscribes to both."""
    for topic in (TOPIC, OTHER_TOPIC):
        await register_topic(config, topic, queue_count=QUEUES)
    await register_group(config)
    await config.subscriptions.create("default", GROUP, OTHER_TOPIC, PAID)
    return config


@asynccontextmanager
async def instance(addresses: str | Iterable[str], act: Any = None, **options: Any) -> AsyncIterator[Collected]:
    """Run an instance of the group that handles both topics, and does not wait until it is attached."""
    collected = Collected(act)
    async with MessageCenter(addresses, drain_timeout_seconds=2.0) as center:  # type: ignore[arg-type]
        for topic in (TOPIC, OTHER_TOPIC):
            center.subscriber(group=GROUP, topic=topic, **options)(collected.handle)
        starting = asyncio.ensure_future(center.start())
        try:
            yield collected
        finally:
            starting.cancel()


async def publish(address: str, count: int, first: int = 0, topic: str = TOPIC) -> None:
    async with MessageCenter(address) as center:
        out = [OutgoingMessage(topic, PAID, f"{topic} {n}") for n in range(first, first + count)]
        answers = await center.publish_many(out)
    assert not [answer for answer in answers if isinstance(answer, Exception)]


def bodies(count: int, topic: str = TOPIC) -> list[str]:
    return sorted(f"{topic} {n}" for n in range(count))


def lanes(broker: Broker, topic: str) -> set[int]:
    return {
        queue_id
        for group in broker.hub.groups.values()
        for queue_id, owned in group.lanes.items()
        if owned.topic.name == topic and not owned.lane.is_stopped
    }


@pytest.mark.parametrize("first", ["older", "newer"])
async def test_a_group_is_served_by_the_broker_that_understands_it_whichever_its_instance_asks_first(
    first: str,
    wide_trade: ConfigService,
    broker: Broker,
    start_newer: StartNewer,
    message_store: MessageStore,
    database_url: str,
) -> None:
    newer = await start_newer()
    await routed(await by_hand(database_url, GROUP_REQUIRES), broker, newer)
    addresses = [broker.address, newer.address] if first == "older" else [newer.address, broker.address]
    async with instance(addresses) as got:
        # Any broker stores it.
        await publish(broker.address, 100)
        await publish(newer.address, 100, topic=OTHER_TOPIC)
        assert sorted(await got.until(200)) == sorted(bodies(100) + bodies(100, OTHER_TOPIC))
        assert (len(lanes(newer, TOPIC)), lanes(broker, TOPIC)) == (QUEUES, set())
        alarm = await alarmed(message_store, "colour")
        assert alarm.broker == broker.address

        await routed(await by_hand(database_url, "UPDATE subscriber_group SET requires = '{}'"), broker, newer)
        await not_alarmed(message_store)


async def test_an_instance_that_knows_only_the_broker_that_does_not_understand_finds_the_other(
    wide_trade: ConfigService, broker: Broker, start_newer: StartNewer, database_url: str
) -> None:
    newer = await start_newer()
    await routed(await by_hand(database_url, GROUP_REQUIRES), broker, newer)
    await eventually(lambda: len(broker.cluster.heartbeats.brokers) == 2)
    async with instance(broker.address) as got:
        await publish(broker.address, 100)
        assert sorted(await got.until(100)) == bodies(100)


async def test_of_a_group_with_instances_at_both_the_lanes_of_one_topic_go_to_the_broker_that_understands_it(
    wide_trade: ConfigService, broker: Broker, start_newer: StartNewer, database_url: str
) -> None:
    newer = await start_newer()
    async with instance(broker.address) as here, instance(newer.address) as there:
        await eventually(lambda: lanes(broker, TOPIC) and lanes(newer, TOPIC), what="spread")
        await publish(broker.address, 100)
        await eventually(lambda: len(here.messages) + len(there.messages) >= 100)
        version = await by_hand(database_url, TOPIC_REQUIRES)
        await publish(newer.address, 100, first=100)
        await routed(version, broker, newer)
        await publish(newer.address, 100, first=200)
        await publish(broker.address, 100, topic=OTHER_TOPIC)
        await eventually(lambda: len(lanes(newer, TOPIC)) == QUEUES, what="one topic's lanes are at the newer broker")
        await eventually(lambda: len(here.messages) + len(there.messages) >= 400)
        assert not lanes(broker, TOPIC)
        await eventually(lambda: len(lanes(broker, OTHER_TOPIC) | lanes(newer, OTHER_TOPIC)) == QUEUES)
        assert lanes(broker, OTHER_TOPIC)
        assert lanes(newer, OTHER_TOPIC)
        # Nobody is sent to and fro.
        assert [len(b.hub.groups[g].instances) for b in (broker, newer) for g in b.hub.groups] == [1, 1]
    assert sorted(here.bodies + there.bodies) == sorted(bodies(300) + bodies(100, OTHER_TOPIC))


async def test_an_instance_goes_where_all_of_its_groups_topics_are_understood(
    wide_trade: ConfigService, broker: Broker, start_newer: StartNewer, database_url: str
) -> None:
    newer = await start_newer()
    await routed(await by_hand(database_url, TOPIC_REQUIRES), broker, newer)
    async with instance(broker.address) as got:
        await eventually(newer.cluster.heartbeats.groups_at_others, what="the newer broker knows whom to tell")
        await publish(newer.address, 100)
        await publish(newer.address, 100, topic=OTHER_TOPIC)
        # The other topic at once, where it is.
        await eventually(lambda: bodies(100, OTHER_TOPIC) == sorted(got.bodies))
        assert len(lanes(broker, OTHER_TOPIC)) == QUEUES
        await got.until(200, 20)
        assert len(lanes(newer, TOPIC)) == QUEUES
    assert sorted(got.bodies) == sorted(bodies(100) + bodies(100, OTHER_TOPIC))


async def test_a_group_that_begins_to_require_more_while_it_is_served_moves_without_a_loss_or_a_duplicate(
    wide_trade: ConfigService, broker: Broker, start_newer: StartNewer, database_url: str
) -> None:
    newer = await start_newer()

    async def slowly(_: Message) -> None:
        # Something is always in flight.
        await asyncio.sleep(0.01)

    both = [broker.address, newer.address]
    async with instance(both, slowly) as one, instance(both[::-1], slowly) as two:
        await eventually(lambda: lanes(broker, TOPIC) and lanes(newer, TOPIC), what="spread")
        publishing = asyncio.create_task(publish(broker.address, 2_000))
        await eventually(lambda: len(one.messages) + len(two.messages) >= 200)
        await routed(await by_hand(database_url, GROUP_REQUIRES), broker, newer)
        await publishing
        await eventually(lambda: len(one.messages) + len(two.messages) >= 2_000, 20)
        await eventually(lambda: len(lanes(newer, TOPIC)) == QUEUES)
        assert not lanes(broker, TOPIC)
    assert sorted(one.bodies + two.bodies) == bodies(2_000)


async def test_what_only_one_broker_cannot_read_the_other_serves(
    wide_trade: ConfigService,
    broker: Broker,
    start_broker: StartBroker,
    message_store: MessageStore,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has_old_compiler = ContextVar("has_old_compiler", default=False)

    def compile_here(text: str) -> Any:
        if has_old_compiler.get():
            raise InvalidExpressionError("undeclared reference to 'headers.size'")
        return compile_expression(text)

    # No feature tells of it: the versions of a library differ.
    monkeypatch.setattr(route_rows, "compile_expression", compile_here)
    token = has_old_compiler.set(True)
    older = await start_broker(lease_seconds=LEASE_SECONDS)
    has_old_compiler.reset(token)
    async with instance(older.address) as here, instance(broker.address) as there:
        await eventually(lambda: lanes(older, TOPIC) and lanes(broker, TOPIC), what="spread")
        topic_id = (await wide_trade.topics.get("default", TOPIC)).topic_id
        header = f"UPDATE subscription SET mode = 'HEADER', expression = 'true' WHERE topic_id = {topic_id}"
        await routed(await by_hand(database_url, header), broker, older)
        await publish(older.address, 100)
        await eventually(lambda: len(there.messages) + len(here.messages) >= 100)
        await eventually(lambda: len(lanes(broker, TOPIC)) == QUEUES, what="one topic's lanes are at one broker")
        assert not lanes(older, TOPIC)
        assert lanes(older, OTHER_TOPIC)
        assert (await alarmed(message_store, "headers.size")).broker == older.address
        assert len(await standing(message_store)) == 1
    assert sorted(here.bodies + there.bodies) == bodies(100)


async def test_what_other_brokers_say_of_themselves_in_another_form_ends_nobody(
    wide_trade: ConfigService, broker: Broker, database_url: str
) -> None:
    odd = (
        "INSERT INTO broker (broker_id, address, host, pid, snapshot_version, heartbeat_at, groups, features, withheld)"
        " SELECT gen_random_uuid(), 'odd:' || n, 'odd', 1, 1, now() + interval '1 hour', g::jsonb, f::text[], w::jsonb"
        " FROM (VALUES (1, '[]', '{NULL}', '[]'), (2, '{\"x\": 1}', '{}', '{\"x\": 1}'), (3, '7', '{{a},{b}}', '7'),"
        " (4, '{\"1\": \"many\"}', '{}', '{\"1\": [\"all\"]}'), (5, '{\"1\": -1}', '{}', '{\"1\": {}}'),"
        " (6, '{\"1\": ' || repeat('9', 400) || '}', '{}', 'null'), (7, '{\"' || repeat('9', 5000) || '\": 1}', '{}',"
        " '{}')) AS odd (n, g, f, w)"
    )
    await by_hand(database_url, odd)
    await eventually(lambda: len(broker.cluster.heartbeats.brokers) == 8)
    async with instance(broker.address) as got:
        await publish(broker.address, 100)
        assert sorted(await got.until(100)) == bodies(100)
