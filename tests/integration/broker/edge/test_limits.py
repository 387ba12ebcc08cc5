"""Limits over the wire: refused with the name and the limit, never cut, and never at the cost of a neighbour."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter
from msgbroker.server.app import Broker
from msgbroker.v1 import message_pb2, publisher_pb2
from msgdb.store import MessageStore
from tests.support.collecting import PAID, TOPIC, register_group, register_topic, subscribed
from tests.support.eventually import eventually
from tests.support.raw_streams import raw_publisher


def said(**fields: Any) -> message_pb2.Message:
    return message_pb2.Message(**{"topic": TOPIC, "event_code": PAID, **fields})


REFUSED: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("BODY_TOO_LARGE", {"body": b"x" * 8_193}, (TOPIC, "8193", "8192")),
    ("INVALID_KEY", {"key": "k" * 257}, ("key", "257", "256")),
    ("INVALID_KEY", {"key": "键" * 86}, ("key", "258", "256")),
    ("INVALID_KEY", {"key": "a\0b"}, ("key", "NUL")),
    ("INVALID_KEY", {"ordering_key": "k" * 257}, ("ordering key", "257", "256")),
    ("INVALID_HEADERS", {"headers": {str(n): "" for n in range(65)}}, ("65", "64")),
    ("INVALID_HEADERS", {"headers": {"h": "x" * 4_096}}, ("4097", "4096")),
    ("INVALID_HEADERS", {"headers": {"h": "a\0"}}, ("'h'", "NUL")),
    ("INVALID_HEADERS", {"headers": {"": "a"}}, ("without a name",)),
    ("INVALID_NAME", {"topic": "T" * 129}, ("topic", "129", "128")),
    ("INVALID_NAME", {"topic": "no spaces"}, ("topic", "A-Z a-z 0-9 _ - . :")),
    ("INVALID_NAME", {"topic": ""}, ("topic", "empty")),
    ("INVALID_NAME", {"event_code": "E" * 65}, ("event code", "65", "64")),
    ("TOPIC_NOT_FOUND", {"topic": "TP_NONE"}, ("TP_NONE", "default")),
    ("EVENT_CODE_NOT_FOUND", {"event_code": "EC_NONE"}, ("EC_NONE", TOPIC)),
    ("TOPIC_CLOSED", {"topic": "TP_CLOSED"}, ("TP_CLOSED", "closed")),
    ("DELAY_NOT_SUPPORTED", {"deliver_at_us": 1}, (TOPIC,)),
    ("INVALID_FIELD", {"born_at_us": -1}, ("born_at_us", "2100")),
]


async def test_every_bad_message_of_a_frame_is_refused_alone_and_its_neighbours_are_stored_in_order(
    trade: ConfigService, broker: Broker, message_store: MessageStore
) -> None:
    await register_topic(trade, "TP_CLOSED")
    closed = await trade.topics.update("default", "TP_CLOSED", is_closed=True)
    await trade.wait_until_active(closed.version)
    messages = []
    for number, (_, fields, _) in enumerate(REFUSED):
        messages += [said(body=f"good {number}".encode(), key="k"), said(**fields)]
    async with raw_publisher(broker.address) as raw:
        await raw.send(1, messages, publisher_id=secrets.token_bytes(16))
        answer = await raw.answer()

    assert not answer.HasField("failure")
    assert [refusal.index for refusal in answer.refusals] == list(range(1, len(messages), 2))
    assert [refusal.refusal.reason for refusal in answer.refusals] == [reason for reason, _, _ in REFUSED]
    for refusal, (_, _, words) in zip(answer.refusals, REFUSED, strict=True):
        assert all(word in refusal.refusal.message for word in words), (words, refusal.refusal.message)
    assert [bool(queue_id) for queue_id in answer.queue_ids] == [True, False] * len(REFUSED)
    assert list(answer.queue_offsets[::2]) == list(range(len(REFUSED)))
    async with message_store.connection() as conn:
        rows = await (await conn.execute("SELECT body FROM message ORDER BY queue_offset")).fetchall()
    assert [body for (body,) in rows] == [b"good %d" % number for number in range(len(REFUSED))]


async def test_what_is_just_within_the_limits_arrives_whole(
    config: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    topic, event_code, group = "T" * 128, "E" * 64, "G" * 64
    await config.topics.create("default", topic)
    await config.event_codes.add("default", topic, event_code)
    await register_group(config, group, event_code, topic=topic)
    headers = {f"header-{n:02}": "v" * 55 for n in range(63)} | {"h": "v" * (4_096 - 63 * 64 - 1)}
    async with subscribed(broker.address, group, topic=topic) as got:
        body = secrets.token_bytes(8_192)
        await center.publish(topic, event_code, body, headers=headers, key="k" * 256, ordering_key="键" * 85)
        await eventually(lambda: got.messages)

    (message,) = got.messages
    assert (message.body, message.headers) == (body, headers)
    assert (message.key, message.ordering_key) == ("k" * 256, "键" * 85)


async def test_a_topic_may_be_given_bodies_of_4_mib(
    config: ConfigService, broker: Broker, center: MessageCenter, message_store: MessageStore
) -> None:
    limit = 4 * 1024 * 1024
    await register_topic(config, "TP_LARGE", body_bytes_max=limit)
    await register_group(config, "SG_LARGE", topic="TP_LARGE")
    body = secrets.token_bytes(limit)
    async with subscribed(broker.address, "SG_LARGE", topic="TP_LARGE") as got:
        await center.publish("TP_LARGE", PAID, body, headers={"h": "x" * 4_000}, key="k" * 256)
        async with raw_publisher(broker.address) as raw:
            await raw.send(1, [said(topic="TP_LARGE", body=body + b"x")], publisher_id=secrets.token_bytes(16))
            answer = await raw.answer()
        await eventually(lambda: got.messages)

    assert [message.body for message in got.messages] == [body]
    assert [refusal.refusal.reason for refusal in answer.refusals] == ["BODY_TOO_LARGE"]
    assert str(limit) in answer.refusals[0].refusal.message


@pytest.mark.parametrize(
    "count, body_bytes, words", [(1_001, 1, ("1001", "1000")), (523, 8_000, ("bytes", str(4 * 1024 * 1024)))]
)
async def test_a_frame_that_is_too_large_ends_the_stream_once_those_before_it_are_answered(
    trade: ConfigService, broker: Broker, count: int, body_bytes: int, words: tuple[str, ...]
) -> None:
    async with raw_publisher(broker.address) as raw:
        await raw.send(1, [said(body=b"before")], publisher_id=secrets.token_bytes(16))
        await raw.send(2, [said(body=b"x" * body_bytes)] * count)
        stored = await raw.answer()
        code, metadata = await raw.end()
        details = await raw.details()

    assert (stored.sequence, list(stored.queue_offsets)) == (1, [0])
    assert (code.name, metadata["msgcenter-reason"]) == ("INVALID_ARGUMENT", "FRAME_TOO_LARGE")
    assert all(word in details for word in words)


@pytest.mark.parametrize(
    "hello, status, reason",
    [
        ({"publisher_id": b"short"}, "INVALID_ARGUMENT", "INVALID_FIELD"),
        ({"publisher_id": b""}, "INVALID_ARGUMENT", "INVALID_FIELD"),
        ({"namespace": "nowhere"}, "NOT_FOUND", "NAMESPACE_NOT_FOUND"),
        ({"namespace": "n" * 200_000}, "INVALID_ARGUMENT", "INVALID_NAME"),
        ({"publisher_group": "g" * 200_000}, "INVALID_ARGUMENT", "INVALID_NAME"),
        ({"publisher_group": "PG_NOBODY"}, "NOT_FOUND", "GROUP_NOT_FOUND"),
        ({"born_host": "h" * 129}, "INVALID_ARGUMENT", "INVALID_FIELD"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
async def test_a_stream_with_a_bad_hello_ends_with_its_reason(
    trade: ConfigService, broker: Broker, hello: dict[str, Any], status: str, reason: str
) -> None:
    async with raw_publisher(broker.address) as raw:
        await raw.send(1, [said()], **{"publisher_id": secrets.token_bytes(16), **hello})
        code, metadata = await raw.end()

    assert (code.name, metadata["msgcenter-reason"]) == (status, reason)


async def test_a_frame_that_cannot_be_read_ends_the_stream_with_its_reason(
    trade: ConfigService, broker: Broker
) -> None:
    async with raw_publisher(broker.address) as raw:
        await raw.send(1, [said()], publisher_id=secrets.token_bytes(16))
        await raw.answer()
        await raw.send_encoded(b"\x10\x02\x1a\x04\x0a\x02\xff")
        code, metadata = await raw.end()

    assert (code.name, metadata["msgcenter-reason"]) == ("INVALID_ARGUMENT", "INVALID_FIELD")


async def test_a_message_that_cannot_be_read_is_refused_alone(trade: ConfigService, broker: Broker) -> None:
    async with raw_publisher(broker.address) as raw:
        await raw.send(1, [said()], publisher_id=secrets.token_bytes(16))
        await raw.answer()
        good = publisher_pb2.PublishFrame(sequence=2, messages=[said()]).SerializeToString()
        await raw.send_encoded(good + b"\x1a\x04\x0a\x02\xff\xfe")
        result = await raw.answer()

    assert [refusal.index for refusal in result.refusals] == [1]
    assert result.refusals[0].refusal.reason == "INVALID_FIELD"
    assert [queue_id > 0 for queue_id in result.queue_ids] == [True, False]


async def test_messages_without_a_sequence_end_the_stream(trade: ConfigService, broker: Broker) -> None:
    async with raw_publisher(broker.address) as raw:
        await raw.send(0, [said()], publisher_id=secrets.token_bytes(16))
        code, metadata = await raw.end()

    assert (code.name, metadata["msgcenter-reason"]) == ("INVALID_ARGUMENT", "INVALID_FIELD")


async def test_a_registered_publisher_group_is_stored_with_the_message(
    trade: ConfigService, broker: Broker, message_store: MessageStore
) -> None:
    made = await trade.publisher_groups.create("default", "PG_SHOP")
    await trade.wait_until_active(made.version)
    async with MessageCenter(broker.address, publisher_group="PG_SHOP") as center:
        await center.publish(TOPIC, PAID, "a")

    async with message_store.connection() as conn:
        row = await (await conn.execute("SELECT publisher_group FROM message")).fetchone()
    assert row == ("PG_SHOP",)
