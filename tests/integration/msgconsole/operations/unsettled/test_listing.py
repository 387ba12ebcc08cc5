"""What a group has begun and not settled, with real brokers and instances."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import grpc
import pytest

from confdb.brokers import BrokerBeat, BrokerRegistry
from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.client import MessageCenter
from msgbroker.contract.errors import (
    GroupNotFoundError,
    InvalidSettingError,
    SubscriptionNotFoundError,
    ThingNotFoundError,
    TopicNotFoundError,
)
from msgbroker.server.app import Broker
from msgbroker.v1 import subscriber_pb2
from msgconsole.operations.status.answers import State
from msgconsole.operations.status.message_status import find_status
from msgconsole.operations.status.wanted import WantedStatus
from msgconsole.operations.stores import Stores
from msgconsole.operations.unsettled.answers import UnsettledReport, WantedUnsettled
from msgconsole.operations.unsettled.listing import list_unsettled
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker, StartBrokerProcess
from tests.support.collecting import GROUP, PAID, REFUNDED, TOPIC, register_group, register_topic
from tests.support.eventually import eventually
from tests.support.raw_streams import RawSubscriber, raw_subscriber
from tests.support.two_brokers import lanes, publish

RETRY = subscriber_pb2.VERDICT_RETRY


@pytest.fixture
async def stores(database_url: str, message_store: MessageStore) -> AsyncIterator[Stores]:
    async with ConfigStore.open(database_url) as opened:
        yield Stores(opened, message_store)


async def look(stores: Stores, **more: Any) -> UnsettledReport:
    return await list_unsettled(stores, WantedUnsettled(namespace="default", group=GROUP, **more))


async def until(stores: Stores, is_so: Callable[[UnsettledReport], object], **more: Any) -> UnsettledReport:
    """Return what is not settled once it is so."""
    reports: list[UnsettledReport] = []

    async def seen() -> bool:
        reports.append(await look(stores, **more))
        return bool(is_so(reports[-1]))

    try:
        await eventually(seen)
    except AssertionError:
        pytest.fail(f"it did not become so: {reports[-1]}")
    return reports[-1]


def states(report: UnsettledReport) -> list[State]:
    return [row.state for row in report.messages]


def places(report: UnsettledReport) -> list[tuple[int, int]]:
    return [(row.queue_id, row.queue_offset) for row in report.messages]


async def send(address: str, *bodies: str, event_code: str = PAID) -> list[UUID]:
    async with MessageCenter(address) as center:
        return [(await center.publish(TOPIC, event_code, body, key=f"order-{body}")).message_id for body in bodies]


async def check_as_their_status_says(stores: Stores, report: UnsettledReport) -> None:
    """Check that each message is in the state that its own status has."""
    for row in report.messages:
        wanted = WantedStatus(namespace="default", message_id=row.message_id, group=GROUP)
        (told,) = (await find_status(stores, wanted)).places[0].groups
        assert (told.state, told.due_at, told.last_error) == (row.state, row.due_at, row.last_error)


async def test_each_message_is_told_with_who_has_it_the_oldest_first(
    stores: Stores, broker: Broker, config: ConfigService
) -> None:
    await register_topic(config, queue_count=1)
    await register_group(config)
    async with raw_subscriber(broker.address, credit=2, host="shop-1", says_begun=True) as subscriber:
        ids = await send(broker.address, *"abcde")
        first, second = await subscriber.until(2)
        await subscriber.begin(second)
        await subscriber.settle(first, verdict=RETRY, delay_ms=60_000, error="no room")
        await subscriber.until(3)
        expected = [State.RETRYING, State.IN_FLIGHT, State.IN_FLIGHT]
        report = await until(
            stores,
            lambda told: (
                states(told) == expected
                and told.messages[0].last_error
                and told.messages[1].has_begun
                and told.ready == 2
            ),
        )

        again, begun, handed = report.messages
        ready = (await look(stores, state=State.PENDING)).messages
        everything = [*report.messages, *ready]
        assert [row.message_id for row in everything] == ids
        assert [row.key for row in everything] == [f"order-{body}" for body in "abcde"]
        assert {(row.topic, row.event_code, row.broker) for row in everything} == {(TOPIC, PAID, broker.address)}
        assert [row.queue_offset for row in everything] == [0, 1, 2, 3, 4]
        assert [row.attempt for row in everything] == [2, 1, 1, 1, 1]
        assert again.due_at is not None
        assert again.due_at > datetime.now(UTC) + timedelta(seconds=30)
        assert (again.last_error, again.instance_id, again.until) == ("no room", None, None)
        assert (begun.instance_id, begun.host, begun.has_begun, handed.has_begun) == ("raw", "shop-1", True, False)
        assert begun.since is not None
        assert begun.until is not None
        assert begun.stored_at <= begun.since + timedelta(seconds=1)
        assert timedelta(seconds=59) < begun.until - begun.since < timedelta(seconds=61)
        assert "instance raw (on shop-1) at broker " in begun.detail
        assert {row.detail for row in ready} == {"it is ready for the next instance that has room"}
        assert 0 <= handed.age_seconds <= begun.age_seconds <= again.age_seconds < 60
        assert (report.is_complete, report.has_more, report.next) == (True, False, [])
        await check_as_their_status_says(stores, report)

        for state in set(expected):
            narrower = await look(stores, state=state)
            assert places(narrower) == [(r.queue_id, r.queue_offset) for r in report.messages if r.state is state]
        assert places(await look(stores, limit=2)) == places(report)[:2]
        assert not (await look(stores, limit=2)).is_complete
        assert (await look(stores, instance_id="somebody else")).messages == []


async def test_what_paused_subscriptions_want_is_shelved_and_goes_on_when_they_do(
    stores: Stores, broker: Broker, config: ConfigService
) -> None:
    await register_topic(config, queue_count=1)
    await register_group(config, GROUP, PAID, REFUNDED)
    paused = await config.subscriptions.update("default", GROUP, TOPIC, REFUNDED, paused=True)
    await config.wait_until_active(paused.version)
    async with raw_subscriber(broker.address) as subscriber:
        (refunded,) = await send(broker.address, "a", event_code=REFUNDED)
        (paid,) = await send(broker.address, "b")
        report = await until(stores, lambda told: states(told) == [State.SHELVED, State.IN_FLIGHT])
        assert [row.message_id for row in report.messages] == [refunded, paid]
        assert [row.message_id for row in (await look(stores, state=State.SHELVED)).messages] == [refunded]

        await config.subscriptions.update("default", GROUP, TOPIC, REFUNDED, paused=False)
        await subscriber.until(2)
        await until(stores, lambda told: states(told) == [State.IN_FLIGHT, State.IN_FLIGHT])
        await subscriber.settle(*subscriber.given)
        await until(stores, lambda told: not told.messages and told.is_complete)


async def test_two_brokers_are_told_of_as_one_while_instances_come_and_go(
    stores: Stores, broker: Broker, start_broker: StartBroker, config: ConfigService
) -> None:
    other = await start_broker()
    await register_topic(config, queue_count=16)
    await register_group(config)
    brokers = {each.address: each for each in (broker, other)}

    def is_spread() -> bool:
        owned = [lanes(each) for each in brokers.values()]
        return all(owned) and sum(map(len, owned)) == 16

    async with raw_subscriber(broker.address, instance_id="a") as staying:
        async with raw_subscriber(other.address, instance_id="b"):
            await eventually(is_spread, what="lanes at both")
            await publish(broker.address, 100)
            report = await until(stores, lambda told: len(told.messages) == 100, limit=1_000)
            check_each_once(report)
            assert {row.broker for row in report.messages} == set(brokers)
            for row in report.messages:
                assert row.broker is not None
                assert row.queue_id in lanes(brokers[row.broker])
                assert row.instance_id == {broker.address: "a", other.address: "b"}[row.broker]
            of_b = await look(stores, instance_id="b", limit=1_000)
            assert places(of_b) == [(r.queue_id, r.queue_offset) for r in report.messages if r.instance_id == "b"]
            assert places(await look(stores, limit=7)) == places(report)[:7]
        # What the one that went had comes to the other, wherever its lanes are then.
        await until(
            stores,
            lambda told: {row.instance_id for row in told.messages} == {"a"} and len(told.messages) == 100,
            limit=1_000,
        )
        await settle_all(staying)
        await until(stores, lambda told: not told.messages and told.is_complete and not told.next)


async def settle_all(subscriber: RawSubscriber) -> None:
    await subscriber.settle(*subscriber.given)


def check_each_once(report: UnsettledReport) -> None:
    assert len(set(places(report))) == len(report.messages)
    order = [(row.stored_at, row.queue_id, row.queue_offset) for row in report.messages]
    assert order == sorted(order)


async def test_a_broker_that_was_killed_is_named_until_others_have_its_lanes(
    stores: Stores, config: ConfigService, broker_process: StartBrokerProcess
) -> None:
    killed, other = broker_process(), broker_process()
    # Registering waits for brokers that run.
    addresses = {killed.address, other.address}
    await register_topic(config, queue_count=8)
    await register_group(config)
    async with (
        raw_subscriber(killed.address, instance_id="a") as dying,
        raw_subscriber(other.address, instance_id="b") as staying,
    ):

        def has_both(report: UnsettledReport) -> bool:
            return {row.broker for row in report.messages} == addresses and len(report.messages) == 40

        await eventually(lambda: owners(stores, 2), 30, what="lanes at both")
        await publish(other.address, 40)
        await until(stores, has_both, limit=1_000)
        given = dying.given[0]
        await dying.settle(given, verdict=RETRY, delay_ms=3_600_000, error="boom")
        place = (given.queue_id, given.delivery.queue_offset)
        await until(stores, lambda told: (place, "boom") in errors(told), limit=1_000)

        killed.kill()
        report = await until(stores, lambda told: told.why_not, limit=1_000)
        assert not report.is_complete
        (why,) = report.why_not
        assert killed.address in why
        assert "only what is written down is told" in why
        # What the other has is told, and so is what was written down.
        assert (place, "boom") in errors(report)
        assert {row.broker for row in report.messages} == {other.address, None}
        written = next(row for row in report.messages if row.broker is None)
        assert (written.state, written.attempt) == (State.RETRYING, 2)
        assert "or an instance has it: its broker was not asked, or did not answer" in written.detail
        assert any("an instance may have it" in row.detail for row in report.next)

        taken = await until(stores, lambda told: told.is_complete and len(told.messages) == 40, limit=1_000)
        check_each_once(taken)
        assert {row.broker for row in taken.messages} == {other.address}
        assert (place, "boom") in errors(taken)
        await settle_all(staying)


async def owners(stores: Stores, count: int) -> bool:
    """Return whether so many brokers own all lanes."""
    async with stores.messages.connection() as conn:
        row = await (await conn.execute("SELECT count(DISTINCT owner), count(*) FROM cursor")).fetchone()
    return row == (count, 8)


def errors(report: UnsettledReport) -> list[tuple[tuple[int, int], str | None]]:
    return [((row.queue_id, row.queue_offset), row.last_error) for row in report.messages]


async def test_without_an_instance_it_is_told_what_comes_next_and_what_waits(
    stores: Stores, broker: Broker, config: ConfigService
) -> None:
    await register_topic(config, queue_count=1)
    await register_group(config)
    first, second = await send(broker.address, "a", "b")
    never = await look(stores)
    assert (never.messages, [row.message_id for row in never.next]) == ([], [first])
    assert "no broker serves its lane" in never.next[0].detail

    async with raw_subscriber(broker.address, credit=1) as subscriber:
        (given,) = await subscriber.until(1)
        await subscriber.settle(given, verdict=RETRY, delay_ms=3_600_000, error="boom")
        await until(stores, lambda told: states(told) == [State.RETRYING, State.IN_FLIGHT] and not told.next)
        await subscriber.leave()

    # What it had when it went is blamed, and has a row, too.
    (third,) = await send(broker.address, "c")
    gone = await until(stores, lambda told: [row.broker for row in told.messages] == [None, None])
    assert (gone.is_complete, states(gone)) == (True, [State.RETRYING, State.RETRYING])
    assert [row.message_id for row in gone.messages] == [first, second]
    assert all("no broker serves its lane" in row.detail for row in gone.messages)
    assert [(row.message_id, row.key) for row in gone.next] == [(third, "order-c")]
    assert "no broker serves its lane" in gone.next[0].detail
    assert (await look(stores, state=State.RETRYING)).next == []
    assert (await look(stores, state=State.IN_FLIGHT)).messages == []


async def beat_as_owner(stores: Stores, address: str) -> None:
    """Let all lanes be owned by a broker that is at *address*, as far as anybody knows."""
    beat = BrokerBeat(broker_id=uuid4(), address=address, host="h", pid=1, snapshot_version=0)
    await BrokerRegistry(stores.config).beat(beat)
    async with stores.messages.connection() as conn:
        await conn.execute(
            "UPDATE cursor SET owner = %s, epoch = epoch + 1, lease_until = now() + interval '1 hour'",
            (beat.broker_id,),
        )


async def test_a_broker_of_an_earlier_version_is_named_as_such_and_the_store_is_told(
    stores: Stores, start_broker: StartBroker, config: ConfigService
) -> None:
    broker = await start_broker()
    await register_topic(config, queue_count=1)
    await register_group(config)
    async with raw_subscriber(broker.address) as subscriber:
        ids = await send(broker.address, "a", "b")
        given, _ = await subscriber.until(2)
        await subscriber.settle(given, verdict=RETRY, delay_ms=3_600_000, error="boom")
        await until(stores, lambda told: told.messages and told.messages[0].last_error)
        await subscriber.leave()
    await until(stores, lambda told: [row.broker for row in told.messages] == [None, None])

    server = grpc.aio.server()
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"

    async def in_flight(_request: bytes, _context: Any) -> bytes:
        return b""

    methods: Any = {"InFlight": grpc.unary_unary_rpc_method_handler(in_flight)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("msgbroker.v1.Inspection", methods),))
    await server.start()
    await beat_as_owner(stores, address)
    report = await look(stores)
    await server.stop(None)

    (why,) = report.why_not
    assert f"broker {address} has not answered: " in why
    assert "it is of an earlier version, which cannot be asked" in why
    assert [(row.message_id, row.state) for row in report.messages] == [(each, State.RETRYING) for each in ids]
    assert all("its broker was not asked, or did not answer" in row.detail for row in report.messages)


async def test_what_is_not_there_and_what_cannot_be_asked_is_refused(
    stores: Stores, broker: Broker, config: ConfigService
) -> None:
    await register_topic(config, queue_count=1)
    await register_topic(config, "TP_OTHER")
    await register_group(config)

    with pytest.raises(GroupNotFoundError):
        await list_unsettled(stores, WantedUnsettled(namespace="default", group="SG_TYPO"))
    with pytest.raises(TopicNotFoundError):
        await look(stores, topic="TP_TYPO")
    with pytest.raises(SubscriptionNotFoundError):
        await look(stores, topic="TP_OTHER")
    with pytest.raises(ThingNotFoundError):
        await look(stores, queue_id=4_711)
    for asked in ({"limit": 0}, {"limit": 1_001}, {"state": State.GONE}):
        with pytest.raises(InvalidSettingError):
            await look(stores, **asked)
    with pytest.raises(InvalidSettingError, match="instance"):
        await look(stores, state=State.SHELVED, instance_id="a")
