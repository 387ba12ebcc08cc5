"""A broker ends a publisher's stream when operators ask for it: what was taken in is answered, and all comes once."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import Final
from uuid import UUID

import grpc
import psycopg
import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter, OutgoingMessage
from msgbroker.server import clock
from msgbroker.server.app import Broker
from msgbroker.server.edge.publishing.publisher_connection import PublisherConnection
from msgbroker.v1 import message_pb2, publisher_pb2
from msgdb.acts import list_acts
from msgdb.requests import NewRequest, RequestOutcome
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.broker_requests import asked, outcome_of
from tests.support.collecting import PAID, TOPIC, register_group, register_topic, subscribed
from tests.support.eventually import eventually
from tests.support.raw_streams import RawPublisher, parts_of, raw_publisher
from tests.support.unread_streams import SMALL_WINDOW

PUBLISHER_ID: Final = bytes(range(16))
_TIMES: Final = 8
"""So often a publisher is disconnected."""


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


async def test_it_is_told_to_go_what_comes_meanwhile_is_answered_and_then_the_stream_ends(
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
            # It was on its way when the publisher was told.
            await send(publisher, 3)
            connection.rollback()
        answered = [await publisher.answer(), await publisher.answer()]
        # Its publisher does not end it.
        code, _ = await publisher.end()
        again_request = await request_of(message_store, broker, stream.name)
        assert await outcome_of(message_store, again_request) is RequestOutcome.GONE

    assert (told.draining, told.sequence) == (True, 0)
    assert [(each.sequence, each.HasField("failure")) for each in answered] == [(2, False), (3, False)]
    assert code is grpc.StatusCode.OK
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT convert_from(body, 'UTF8') FROM message ORDER BY 1").fetchall() == [
            ("1",),
            ("2",),
            ("3",),
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
        request_id = await request_of(message_store, broker, stream.name)
        assert await outcome_of(message_store, request_id) is RequestOutcome.DISCONNECTED
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
    published: list[str] = []
    enough = asyncio.Event()
    async with (
        subscribed(broker.address) as collected,
        MessageCenter([broker.address, other.address], on_unavailable=on_unavailable) as center,  # type: ignore[arg-type]
    ):

        async def buy(first: int) -> None:
            for number in itertools.count(first, 4):
                if enough.is_set():
                    return
                await center.publish(TOPIC, PAID, str(number))
                published.append(str(number))

        buying = asyncio.gather(*(buy(first) for first in range(4)))
        names: set[str] = set()
        while len(names) < 4:
            (at, stream), *_ = await eventually(lambda: [(b, each) for b in (broker, other) for each in streams(b)])
            names.add(stream.name)
            await outcome_of(message_store, await request_of(message_store, at, stream.name))
        enough.set()
        await buying
        received = await collected.until(len(published))

    assert Counter(received) == Counter(published)


async def test_one_that_is_alone_with_its_broker_comes_back_to_it(broker: Broker, message_store: MessageStore) -> None:
    async with MessageCenter(broker.address, on_unavailable="raise") as center:
        await center.publish(TOPIC, PAID, "before")
        (stream,) = streams(broker)
        await outcome_of(message_store, await request_of(message_store, broker, stream.name))
        # Perhaps by the same stream: what is on its way as it is told to go is taken in.
        await center.publish(TOPIC, PAID, "meanwhile")
        await eventually(lambda: stream not in streams(broker))
        await center.publish(TOPIC, PAID, "after")
        assert [each.name for each in streams(broker)] != [stream.name]


@pytest.mark.parametrize("body_bytes", [10, 8_000])
async def test_one_that_is_alone_and_publishes_much_hears_of_no_trouble(
    broker: Broker, database_url: str, body_bytes: int
) -> None:
    stored: list[str] = []
    names: set[str] = set()
    client = {"backoff_initial_seconds": 0.01, "backoff_max_seconds": 0.05}
    async with MessageCenter(broker.address, on_unavailable="raise", **client) as center:  # type: ignore[arg-type]

        async def buy(first: str) -> None:
            # Large frames come in parts: the stream must not end between them.
            for number in itertools.count():
                bodies = [f"{first}:{number}:{each}".ljust(body_bytes, "x") for each in range(200)]
                await center.publish_many([OutgoingMessage(TOPIC, PAID, body) for body in bodies])
                stored.extend(bodies)
                if len(names) == _TIMES:
                    return

        buying = asyncio.gather(*(buy(first) for first in "abcd"))
        while len(names) < _TIMES and not buying.done():
            count = len(stored)
            (stream, *_) = await eventually(lambda: [each for each in streams(broker) if each.name not in names])
            await eventually(lambda: len(stored) > count or buying.done())  # noqa: B023 - it is called here
            names.add(stream.name)
            stream.disconnect()
        await buying

    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT convert_from(body, 'UTF8') FROM message").fetchall()
    assert Counter(body for (body,) in rows) == Counter(stored)


async def test_one_that_does_not_read_is_ended_all_the_same(broker: Broker) -> None:
    refused = [message_pb2.Message(topic="TP_UNKNOWN", event_code=PAID)] * 249
    async with raw_publisher(broker.address, SMALL_WINDOW) as publisher:
        for sequence in range(1, 9):
            await publisher.send(sequence, refused, publisher_id=PUBLISHER_ID)
        (stream,) = await eventually(lambda: streams(broker))
        # What it does not read keeps the next answer back.
        writing = broker.hub.outgoing.writing
        await eventually(lambda: any(clock.now() - each.writing_since > 0.5 for each in writing))
        stream.disconnect()
        # With nobody having read a word more.
        await eventually(lambda: not streams(broker))


async def test_a_frame_of_which_parts_are_missing_is_not_taken_in_and_gives_its_room_back(
    broker: Broker, database_url: str
) -> None:
    messages = [message_pb2.Message(topic=TOPIC, event_code=PAID, body=bytes(8_000))] * 200
    first, *others = parts_of(publisher_pb2.PublishFrame(sequence=2, messages=messages).SerializeToString())
    assert others
    service = broker.grpc_door.publisher
    async with raw_publisher(broker.address) as publisher:
        await send(publisher, 1)
        await publisher.answer()
        await publisher.send_encoded(first)
        await eventually(lambda: service.arriving.bytes_held)
        (stream,) = streams(broker)
        stream.disconnect()
        assert (await publisher.answer()).draining
        code, _ = await publisher.end()
        await eventually(lambda: not (streams(broker) or service.arriving.bytes_held or service.places.count))

    assert code is grpc.StatusCode.OK
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT count(*) FROM message").fetchone() == (1,)
