"""Frames that come in parts: one frame, whatever happens between its first part and its last."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import AsyncExitStack

import grpc
import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter, OutgoingMessage
from msgbroker.contract import limits
from msgbroker.server.app import Broker
from msgbroker.v1 import message_pb2, publisher_pb2
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import PAID, TOPIC, register_topic
from tests.support.eventually import eventually
from tests.support.raw_streams import RawPublisher, parts_of, raw_publisher

LARGE = "TP_LARGE"


def frame(sequence: int, bodies: list[bytes], topic: str = TOPIC, publisher_id: bytes | None = None) -> bytes:
    """Return an encoded frame, with a hello if it is given an id."""
    said = [message_pb2.Message(topic=topic, event_code=PAID, body=body, key="k") for body in bodies]
    hello = None if publisher_id is None else publisher_pb2.PublisherHello(publisher_id=publisher_id)
    return publisher_pb2.PublishFrame(hello=hello, sequence=sequence, messages=said).SerializeToString()


def part(body: bytes, frame_bytes: int = 0) -> bytes:
    """Return one part of a frame."""
    return publisher_pb2.PublishFrame(part=body, frame_bytes=frame_bytes).SerializeToString()


PART = b"x" * limits.FRAME_PART_BYTES_MIN


async def send(raw: RawPublisher, parts: list[bytes]) -> None:
    """Send gRPC messages as they are."""
    for each in parts:
        await raw.send_encoded(each)


async def greeted(raw: RawPublisher) -> None:
    """Send a first frame, and see it stored."""
    await raw.send_encoded(frame(1, [b"first"], publisher_id=secrets.token_bytes(16)))
    assert (await raw.answer()).sequence == 1


async def bodies_stored(store: MessageStore) -> list[bytes]:
    """Return what is stored."""
    async with store.connection() as conn:
        rows = await (await conn.execute("SELECT body FROM message ORDER BY queue_offset")).fetchall()
    return [body for (body,) in rows]


@pytest.mark.parametrize("part_bytes", [limits.FRAME_PART_BYTES_MIN, 9_999, limits.FRAME_PART_BYTES_MAX])
async def test_a_frame_in_parts_is_stored_as_one_whatever_their_size(
    trade: ConfigService, broker: Broker, message_store: MessageStore, part_bytes: int
) -> None:
    bodies = [secrets.token_bytes(8_000) for _ in range(100)]
    async with raw_publisher(broker.address) as raw:
        await send(raw, parts_of(frame(1, bodies, publisher_id=secrets.token_bytes(16)), part_bytes))
        answer = await raw.answer()
        await send(raw, [frame(2, [b"whole"])])
        await raw.answer()

    assert len(answer.queue_ids) == len(bodies)
    assert await bodies_stored(message_store) == [*bodies, b"whole"]
    assert broker.committer.budget.bytes_held == 0


async def test_the_client_sends_large_frames_and_bodies_of_4_mib_in_parts(
    config: ConfigService, broker: Broker, message_store: MessageStore
) -> None:
    await register_topic(config, LARGE, body_bytes_max=limits.BODY_BYTES_CEILING)
    bodies = [secrets.token_bytes(limits.BODY_BYTES_CEILING), *(secrets.token_bytes(900_000) for _ in range(6))]
    async with MessageCenter(broker.address) as center:
        receipts = await center.publish_many([OutgoingMessage(LARGE, PAID, body, key="k") for body in bodies])

    assert not [receipt for receipt in receipts if isinstance(receipt, Exception)]
    assert await bodies_stored(message_store) == bodies


@pytest.mark.parametrize(
    "sent, reason, words",
    [
        ([part(b"x" * 10)], "INVALID_FIELD", "frame_bytes"),
        ([part(PART, 5_000), frame(2, [b"between"])], "INVALID_FIELD", "nothing between"),
        ([part(PART, 5_000), part(b"x" * 5, 5_000)], "INVALID_FIELD", "nothing between"),
        ([part(PART, len(PART) + 5), part(b"x" * 10)], "INVALID_FIELD", "5 bytes longer"),
        ([part(b"x" * 10, 5)], "INVALID_FIELD", "5 bytes longer"),
        ([part(PART[:-1], 5_000)], "INVALID_FIELD", "4096 or more"),
        ([part(PART, 10_000), part(b"x")], "INVALID_FIELD", "4096 or more"),
        ([part(b"", 5)], "INVALID_FIELD", "alone"),
        ([part(b"x", 5) + frame(2, [b"more"])], "INVALID_FIELD", "alone"),
        ([frame(2, [b"more"]) + part(b"x", 5)], "INVALID_FIELD", "alone"),
        ([part(b"\xff" * 10, 10)], "INVALID_FIELD", "malformed"),
        ([part(b"x", limits.FRAME_BYTES_CEILING + 1)], "FRAME_TOO_LARGE", "4194304"),
        ([part(b"x", (1 << 32) - 1)], "FRAME_TOO_LARGE", "4194304"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_parts_that_make_no_frame_end_the_stream_and_hold_no_room(
    trade: ConfigService, broker: Broker, sent: list[bytes], reason: str, words: str
) -> None:
    async with raw_publisher(broker.address) as raw:
        await greeted(raw)
        await send(raw, sent)
        code, metadata = await raw.end()

        assert (code.name, metadata["msgcenter-reason"]) == ("INVALID_ARGUMENT", reason)
        assert words in await raw.details()
    await eventually(lambda: arriving_bytes(broker) == 0)


def arriving_bytes(broker: Broker) -> int:
    """Return how much room is held for frames that are not complete."""
    return broker.grpc_door.publisher.arriving.bytes_held


async def test_a_frame_that_is_not_completed_in_time_ends_its_stream_and_gives_its_room_to_others(
    trade: ConfigService, start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REQUEST_SECONDS_MAX", 1.0)
    broker = await start_broker(ingest_bytes_max=1024 * 1024)
    large = frame(2, [b"x" * 8_000] * 100)
    more_than_there_is = 600_000
    async with raw_publisher(broker.address) as sitting, raw_publisher(broker.address) as waiting:
        await greeted(sitting)
        await greeted(waiting)
        await sitting.send_encoded(part(PART, more_than_there_is))
        await eventually(lambda: arriving_bytes(broker) == more_than_there_is)
        # A frame that is whole waits for nobody.
        await waiting.send_encoded(frame(2, [b"whole"]))
        assert (await waiting.answer()).sequence == 2
        await send(waiting, parts_of(large.replace(b"\x10\x02", b"\x10\x03", 1)))
        code, metadata = await sitting.end()
        answer = await waiting.answer()

    assert (code.name, metadata["msgcenter-reason"]) == ("UNAVAILABLE", "UNFINISHED")
    assert (answer.sequence, len(answer.queue_ids)) == (3, 100)
    assert arriving_bytes(broker) == 0


async def test_a_frame_that_comes_slowly_has_time_by_its_size(
    trade: ConfigService, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REQUEST_SECONDS_MAX", 1.5)
    parts = parts_of(frame(2, [b"x" * 8_000] * 250))
    async with raw_publisher(broker.address) as raw:
        await greeted(raw)
        for each in parts:
            await raw.send_encoded(each)
            # The way there is slow.
            await asyncio.sleep(0.6)
        answer = await raw.answer()

    assert len(parts) == 4
    assert (answer.sequence, len(answer.queue_ids)) == (2, 250)


async def test_a_stream_that_ends_in_the_middle_of_a_frame_leaves_nothing_and_the_frame_is_sent_again(
    trade: ConfigService, broker: Broker, message_store: MessageStore
) -> None:
    publisher_id = secrets.token_bytes(16)
    parts = parts_of(frame(1, [b"x" * 8_000] * 100, publisher_id=publisher_id))
    async with raw_publisher(broker.address) as raw:
        await send(raw, parts[:-1])
        await eventually(lambda: arriving_bytes(broker) > 0)
        await raw.done()
        code, _ = await raw.end()
    assert code is grpc.StatusCode.OK
    await eventually(lambda: arriving_bytes(broker) == 0)
    for _ in range(2):
        async with raw_publisher(broker.address) as raw:
            await send(raw, parts)
            answer = await raw.answer()

    assert answer.duplicate
    assert len(await bodies_stored(message_store)) == 100


async def test_small_frames_do_not_wait_for_all_large_ones_that_came_before(
    trade: ConfigService, start_broker: StartBroker
) -> None:
    broker = await start_broker(ingest_bytes_max=1024 * 1024)
    order: list[str] = []
    large = frame(2, [secrets.token_bytes(8_000)] * 500)

    async def pour(raw: RawPublisher) -> None:
        await send(raw, parts_of(large))
        await raw.answer()
        order.append("large")

    async with MessageCenter(broker.address) as center, AsyncExitStack() as stack:
        await center.publish(TOPIC, PAID, "connected")
        raws = [await stack.enter_async_context(raw_publisher(broker.address)) for _ in range(12)]
        for raw in raws:
            await greeted(raw)
        pouring = [asyncio.create_task(pour(raw)) for raw in raws]
        await eventually(lambda: broker.committer.budget.is_full or order)
        await center.publish(TOPIC, PAID, "small")
        order.append("small")
        await asyncio.gather(*pouring)

    assert order.index("small") < 6


_BYTES_FIELD_99 = b"\x9a\x06"


def empty_frame_in_parts(size_bytes: int) -> list[bytes]:
    """Return the parts of a frame without messages: a field of a newer version, say, that is large."""
    length = size_bytes
    varint = b""
    while length > 0x7F:
        varint += bytes([length & 0x7F | 0x80])
        length >>= 7
    return parts_of(_BYTES_FIELD_99 + varint + bytes([length]) + bytes(size_bytes))


async def test_frames_in_parts_without_messages_leave_no_room_held(trade: ConfigService, broker: Broker) -> None:
    async with raw_publisher(broker.address) as raw:
        said = message_pb2.Message(topic=TOPIC, event_code=PAID, body=b"x")
        await raw.send(1, [said], publisher_id=secrets.token_bytes(16))
        await raw.answer()
        for _ in range(3):
            for part in empty_frame_in_parts(1_000_000):
                await raw.send_encoded(part)
        await raw.send(2, [said])
        assert (await raw.answer()).sequence == 2
    await eventually(lambda: not broker.grpc_door.publisher._streams)

    assert arriving_bytes(broker) == 0
