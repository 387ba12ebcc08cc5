"""Asking live brokers for what only their memory has: with whom messages are, and which brokers have not answered."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import grpc
import pytest

from confdb.brokers import BrokerBeat, BrokerRegistry
from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.client import MessageCenter
from msgbroker.client.connect.inspection import MessagePlace, MessageStand
from msgbroker.contract.whereabouts import Stand
from msgbroker.server.app import Broker
from msgbroker.v1 import subscriber_pb2
from msgconsole.operations.brokers.asking import InFlightReport, find_in_flight
from msgconsole.operations.stores import Stores
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import GROUP, PAID, TOPIC, register_group, register_topic
from tests.support.eventually import eventually
from tests.support.other_servers import talking
from tests.support.raw_streams import RawSubscriber, raw_subscriber

NOW_US = time.time() * 1_000_000
MINUTE_US = 60_000_000


@pytest.fixture
async def stores(database_url: str, message_store: MessageStore) -> AsyncIterator[Stores]:
    async with ConfigStore.open(database_url) as opened:
        yield Stores(opened, message_store)


@pytest.fixture
async def group_id(config: ConfigService, broker: Broker) -> int:
    await register_topic(config)
    await register_group(config)
    return (await config.subscriber_groups.get("default", GROUP)).group_id


async def publish(address: str, *bodies: str) -> None:
    async with MessageCenter(address) as center:
        for body in bodies:
            await center.publish(TOPIC, PAID, body, key="one queue")


def places_of(group_id: int, subscriber: RawSubscriber) -> list[MessagePlace]:
    return [MessagePlace(group_id, given.queue_id, given.delivery.queue_offset) for given in subscriber.given]


async def look_until(stores: Stores, places: list[MessagePlace], *stands: Stand) -> list[MessageStand]:
    """Return where messages are once they are *stands*."""

    async def look() -> list[MessageStand]:
        report = await find_in_flight(stores, places)
        assert not report.unanswered
        found = [report.found[place].stand for place in places]
        return found if [each.stand for each in found] == list(stands) else []

    return await eventually(look, what=f"{stands}")


async def test_a_message_in_flight_is_with_its_instance_until_its_time_is_over(
    stores: Stores, broker: Broker, group_id: int
) -> None:
    async with raw_subscriber(broker.address, host="shop-1", says_begun=True) as subscriber:
        await publish(broker.address, "a", "b")
        await subscriber.until(2)
        places = places_of(group_id, subscriber)
        await subscriber.begin(subscriber.given[0])

        async def look() -> list[MessageStand]:
            report = await find_in_flight(stores, places)
            assert [report.found[place].broker for place in places] == [broker.address] * 2
            first, second = (report.found[place].stand for place in places)
            return [first, second] if first.has_begun else []

        first, second = await eventually(look)
        assert {first.stand, second.stand} == {Stand.IN_FLIGHT}
        assert (first.instance_id, first.host, first.attempt, second.has_begun) == ("raw", "shop-1", 1, False)
        assert first.handed_at_us is not None
        assert first.deadline_at_us is not None
        assert NOW_US < first.handed_at_us <= time.time() * 1_000_000
        assert first.deadline_at_us - first.handed_at_us == pytest.approx(MINUTE_US, abs=2)


async def test_what_failed_waits_what_is_settled_is_so_and_what_was_not_published_is_not_read(
    stores: Stores, broker: Broker, group_id: int
) -> None:
    async with raw_subscriber(broker.address) as subscriber:
        await publish(broker.address, "a", "b")
        failed, acked = await subscriber.until(2)
        failed_place, acked_place = places_of(group_id, subscriber)
        await subscriber.settle(failed, verdict=subscriber_pb2.VERDICT_RETRY, delay_ms=60_000, error="secret")
        await subscriber.settle(acked)
        beyond = acked_place._replace(queue_offset=2)
        stands = (Stand.WAITING, Stand.SETTLED, Stand.UNREAD)
        found = await look_until(stores, [failed_place, acked_place, beyond], *stands)

    waiting = found[0]
    assert (waiting.attempt, waiting.instance_id) == (2, "")
    assert waiting.due_at_us == pytest.approx(time.time() * 1_000_000 + MINUTE_US, abs=20_000_000)
    assert "secret" not in repr(found)


async def test_of_a_lane_that_no_broker_owns_nothing_is_known(stores: Stores, broker: Broker, group_id: int) -> None:
    place = MessagePlace(group_id, 1, 0)

    report = await find_in_flight(stores, [place])

    assert report.unanswered == []
    assert (report.found[place].broker, report.found[place].stand.stand) == (None, Stand.NOT_OWNED)


async def test_two_brokers_are_joined_and_more_places_than_one_call_takes(
    stores: Stores, broker: Broker, start_broker: StartBroker, config: ConfigService
) -> None:
    other = await start_broker()
    await register_topic(config, "TP_WIDE", queue_count=16)
    await register_group(config, "SG_WIDE", topic="TP_WIDE")
    group_id = (await config.subscriber_groups.get("default", "SG_WIDE")).group_id
    async with (
        raw_subscriber(broker.address, "SG_WIDE", instance_id="a"),
        raw_subscriber(other.address, "SG_WIDE", instance_id="b"),
    ):

        def lanes_of(of: Broker) -> list[int]:
            return [queue_id for group in of.hub.groups.values() for queue_id in group.lanes]

        def spread() -> list[tuple[str, int]]:
            by_broker = [(each.address, queue_id) for each in (broker, other) for queue_id in lanes_of(each)]
            return by_broker if len(by_broker) == 16 and len({address for address, _ in by_broker}) == 2 else []

        by_broker = await eventually(spread)
        places = {MessagePlace(group_id, q, offset): address for address, q in by_broker for offset in range(100)}
        report = await find_in_flight(stores, list(places))

    assert {place: found.broker for place, found in report.found.items()} == places
    assert {found.stand.stand for found in report.found.values()} == {Stand.UNREAD}


async def beat_at(stores: Stores, address: str) -> None:
    """Let a broker be registered that is at *address*, as far as anybody knows."""
    beat: dict[str, Any] = {"broker_id": uuid4(), "address": address, "host": "h", "pid": 1, "snapshot_version": 0}
    await BrokerRegistry(stores.config).beat(BrokerBeat(**beat))


async def test_a_broker_that_is_not_there_or_does_not_answer_is_named_and_the_others_are_heard(
    stores: Stores, broker: Broker, group_id: int, free_port: int
) -> None:
    await beat_at(stores, f"127.0.0.1:{free_port}")
    async with talking(None, hangs_up=False) as (port, _), raw_subscriber(broker.address) as subscriber:
        silent_address = f"127.0.0.1:{port}"
        await beat_at(stores, silent_address)
        await publish(broker.address, "a")
        await subscriber.until(1)
        report: InFlightReport = await find_in_flight(stores, places_of(group_id, subscriber), seconds_max=1.0)

    assert [found.stand.stand for found in report.found.values()] == [Stand.IN_FLIGHT]
    assert {each.broker for each in report.unanswered} == {f"127.0.0.1:{free_port}", silent_address}
    why = {each.broker: each.why for each in report.unanswered}
    assert "nothing listens there" in why[f"127.0.0.1:{free_port}"]


async def test_a_broker_of_an_earlier_version_is_named_as_such(stores: Stores) -> None:
    server = grpc.aio.server()
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    await beat_at(stores, address)
    report = await find_in_flight(stores, [MessagePlace(1, 1, 0)])
    await server.stop(None)

    (unanswered,) = report.unanswered
    assert unanswered.broker == address
    assert "it is of an earlier version, which cannot be asked" in unanswered.why
