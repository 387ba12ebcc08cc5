"""A broker ends a publisher's stream when operators ask for it: what was taken in is answered, and all comes once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final
from uuid import UUID

import grpc
import psycopg
import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter
from msgbroker.server.app import Broker
from msgbroker.server.edge.publishing.publisher_connection import PublisherConnection
from msgbroker.v1 import message_pb2
from msgdb.acts import list_acts
from msgdb.requests import NewRequest, RequestOutcome
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.broker_requests import asked, outcome_of
from tests.support.collecting import PAID, TOPIC, register_group, register_topic, subscribed
from tests.support.eventually import eventually
from tests.support.raw_streams import RawPublisher, raw_publisher

PUBLISHER_ID: Final = bytes(range(16))


@pytest.fixture(autouse=True)
async def trade(config: ConfigService, broker: Broker) -> ConfigService:
    """Register a topic with one queue, and a group."""
    await register_topic(config, queue_count=1)
    await register_group(config)
    return config


def streams(broker: Broker) -> list[PublisherConnection]:
    return list(broker.grpc_door.publisher.connections)


def broker_id_of(broker: Broker) -> UUID:
    return broker.cluster.heartbeats.identity.broker_id


async def request_of(store: MessageStore, broker: Broker, name: str) -> int:
    """Ask for the end of a stream; return the id of what is asked."""
    return await asked(store, NewRequest(broker_id_of(broker), None, name, "publisher x"), reason="it floods")


async def send(publisher: RawPublisher, sequence: int) -> None:
    """Send a frame with one message, whose body is the frame's number."""
    message = message_pb2.Message(topic=TOPIC, event_code=PAID, body=str(sequence).encode())
    await publisher.send(sequence, [message], publisher_id=PUBLISHER_ID)


async def test_what_was_taken_in_is_answered_then_it_is_told_to_go_and_the_stream_ends(
    broker: Broker, message_store: MessageStore, database_url: str
) -> None:
    async with raw_publisher(broker.address) as publisher:
        await send(publisher, 1)
        await publisher.answer()
        (stream,) = streams(broker)
        with psycopg.connect(database_url) as connection:
            # Nothing can be stored meanwhile.
            connection.execute("LOCK TABLE message IN ACCESS EXCLUSIVE MODE")
            await send(publisher, 2)
            await eventually(lambda: stream.unanswered_frames == 1)
            request_id = await request_of(message_store, broker, stream.name)
            assert await outcome_of(message_store, request_id) is RequestOutcome.DISCONNECTED
            told = await publisher.answer()
            # It is not taken in any more: the publisher hears nothing of it, and sends it elsewhere.
            await send(publisher, 3)
            connection.rollback()
        answered = await publisher.answer()
        code, _ = await publisher.end()
        (again_request,) = [await request_of(message_store, broker, stream.name)]
        assert await outcome_of(message_store, again_request) is RequestOutcome.GONE

    assert (told.draining, told.sequence) == (True, 0)
    assert (answered.sequence, answered.HasField("failure")) == (2, False)
    assert code is grpc.StatusCode.OK
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT convert_from(body, 'UTF8') FROM message ORDER BY 1").fetchall() == [
            ("1",),
            ("2",),
        ]
    async with message_store.connection() as conn:
        (act,) = await list_acts(conn)
    assert (act.action, act.actor, act.thing, act.reason) == ("publisher.disconnect", "ada", "publisher x", "it floods")
    assert act.namespace == "default"


async def test_a_publisher_that_has_connected_again_is_left_alone(broker: Broker, message_store: MessageStore) -> None:
    async with raw_publisher(broker.address) as publisher:
        await send(publisher, 1)
        await publisher.answer()
        (stream,) = streams(broker)
        assert await outcome_of(message_store, await request_of(message_store, broker, stream.name))
        await eventually(lambda: not streams(broker))
    async with raw_publisher(broker.address) as again:
        await send(again, 2)
        await again.answer()
        request_id = await request_of(message_store, broker, stream.name)
        assert await outcome_of(message_store, request_id) is RequestOutcome.GONE
        await send(again, 3)
        assert (await again.answer()).sequence == 3


@pytest.mark.parametrize("on_unavailable", ["wait", "raise"])
async def test_our_client_goes_on_and_whoever_publishes_notices_nothing(
    broker: Broker, start_broker: StartBroker, message_store: MessageStore, on_unavailable: str
) -> None:
    other = await start_broker()
    wanted = [str(number) for number in range(400)]
    async with (
        subscribed(broker.address) as collected,
        MessageCenter([broker.address, other.address], on_unavailable=on_unavailable) as center,  # type: ignore[arg-type]
    ):

        async def buy(bodies: list[str]) -> None:
            for body in bodies:
                await center.publish(TOPIC, PAID, body)

        buying = asyncio.gather(*(buy(wanted[first::4]) for first in range(4)))
        names: set[str] = set()
        while len(names) < 4 and not buying.done():
            (at, stream), *_ = await eventually(lambda: [(b, each) for b in (broker, other) for each in streams(b)])
            names.add(stream.name)
            await outcome_of(message_store, await request_of(message_store, at, stream.name))
        await buying
        received = await collected.until(len(wanted))

    assert len(names) >= 2
    assert Counter(received) == Counter(wanted)


async def test_one_that_is_alone_with_its_broker_comes_back_to_it(broker: Broker, message_store: MessageStore) -> None:
    async with MessageCenter(broker.address, on_unavailable="raise") as center:
        await center.publish(TOPIC, PAID, "before")
        (stream,) = streams(broker)
        await outcome_of(message_store, await request_of(message_store, broker, stream.name))
        await center.publish(TOPIC, PAID, "after")
        assert [each.name for each in streams(broker)] != [stream.name]
