"""What the numbers of frames mean, as docs/protocol.md tells writers of other clients, seen without one of ours."""

from __future__ import annotations

from typing import Any, Final

import grpc
import psycopg
import pytest
from google.protobuf.message import Message as ProtoMessage
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from confdb.services import ConfigService
from msgbroker.contract import limits
from msgbroker.server.app import Broker
from msgbroker.v1 import message_pb2, publisher_pb2, publisher_pb2_grpc
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import PAID, TOPIC, register_topic
from tests.support.eventually import eventually
from tests.support.raw_streams import RawPublisher, raw_publisher

PUBLISHER_ID: Final = bytes(range(16))


@pytest.fixture(autouse=True)
async def trade(config: ConfigService, broker: Broker) -> None:
    """Register a topic with one queue."""
    await register_topic(config, queue_count=1)


def messages(*bodies: bytes) -> list[message_pb2.Message]:
    return [message_pb2.Message(topic=TOPIC, event_code=PAID, body=body) for body in bodies]


async def publish(publisher: RawPublisher, sequence: int, *bodies: bytes) -> publisher_pb2.PublishResult:
    """Send a frame, and return its answer."""
    await publisher.send(sequence, messages(*bodies), publisher_id=PUBLISHER_ID)
    return await publisher.answer()


async def test_a_number_that_is_used_again_is_answered_as_before_whatever_comes_with_it(broker: Broker) -> None:
    async with raw_publisher(broker.address) as publisher, raw_publisher(broker.address) as other_stream:
        first = await publish(publisher, 1, b"1", b"2")
        again = await publish(other_stream, 1, b"something else")

    assert (first.duplicate, again.duplicate) == (False, True)
    assert again.first_message_id == first.first_message_id
    assert again.queue_offsets == [0, 1]


async def test_a_number_that_is_not_the_next_is_not_stored_and_the_next_one_is_told(broker: Broker) -> None:
    async with raw_publisher(broker.address) as publisher:
        await publish(publisher, 1, b"1")
        gap = await publish(publisher, 3, b"3")
        stored = await publish(publisher, 2, b"2")

    assert (gap.sequence, gap.failure.reason, gap.failure.retryable) == (3, "SEQUENCE_GAP", True)
    assert gap.failure.facts["expected"] == "2"
    assert stored.queue_offsets == [1]


async def test_a_frame_is_forgotten_with_the_day_of_its_answer_and_an_id_with_its_last_one(
    broker: Broker, database_url: str
) -> None:
    async with raw_publisher(broker.address) as publisher:
        for sequence in (1, 2):
            await publish(publisher, sequence, b"")
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute("DELETE FROM publisher_frame WHERE sequence = 1")
            forgotten = await publish(publisher, 1, b"")
            connection.execute("DELETE FROM publisher_frame")
            unknown = await publish(publisher, 3, b"")

    assert (forgotten.failure.reason, forgotten.failure.retryable) == ("FRAME_FORGOTTEN", False)
    assert (unknown.failure.reason, unknown.failure.facts["expected"]) == ("SEQUENCE_GAP", "1")


async def test_of_more_frames_than_may_be_unanswered_the_rest_is_read_when_these_are_answered(
    broker: Broker, database_url: str
) -> None:
    count = 4 * limits.FRAMES_UNANSWERED_MAX
    async with raw_publisher(broker.address) as publisher:
        await publish(publisher, 1, b"1")
        (stream,) = broker.grpc_door.publisher._streams.values()
        with psycopg.connect(database_url) as connection:
            # Nothing can be stored meanwhile.
            connection.execute("LOCK TABLE message IN ACCESS EXCLUSIVE MODE")
            for sequence in range(2, 2 + count):
                await publisher.send(sequence, messages(b""))
            await eventually(lambda: len(stream._answers._expected) >= limits.FRAMES_UNANSWERED_MAX)
            taken_in = len(stream._answers._expected)
            connection.rollback()
        answers = [await publisher.answer() for _ in range(count)]

    assert taken_in == limits.FRAMES_UNANSWERED_MAX
    assert [answer.sequence for answer in answers] == list(range(2, 2 + count))
    assert not any(answer.HasField("failure") for answer in answers)


async def test_streams_and_calls_are_refused_with_the_same_details(broker: Broker, start_broker: StartBroker) -> None:
    full = await start_broker(publisher_streams_max=1, ingest_bytes_max=1024 * 1024)
    async with raw_publisher(full.address) as first:
        await publish(first, 1, b"")
        async with raw_publisher(full.address) as second:
            of_stream = details_of((await second.end())[1])
        async with grpc.aio.insecure_channel(full.address) as channel:
            stub: Any = publisher_pb2_grpc.PublisherStub(channel)
            budget = full.committer.budget
            with budget.hold_at_once(budget.bytes_max), pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.Publish(publisher_pb2.PublishRequest(messages=messages(b"")))
        of_call = details_of(dict(refused.value.trailing_metadata() or ()))

    assert of_stream == ("TOO_MANY_STREAMS", "msgcenter", {"kind": "publisher streams", "max": "1"}, 1.0)
    assert (of_call[0], of_call[1], of_call[3]) == ("BROKER_BUSY", "msgcenter", 0.5)


def details_of(metadata: dict[str, Any]) -> tuple[str, str, dict[str, str], float]:
    """Return reason, domain, facts and hint as the googleapis types have them."""
    status = Status.FromString(metadata["grpc-status-details-bin"])
    info, retry = ErrorInfo(), RetryInfo()
    for packed, detail in zip(status.details, (info, retry), strict=True):
        assert isinstance(detail, ProtoMessage)
        assert packed.Unpack(detail)
    facts = dict(info.metadata)
    hint = float(facts.pop("retry_after_seconds"))
    delay_seconds = retry.retry_delay.ToTimedelta().total_seconds()
    assert (hint, metadata["grpc-retry-pushback-ms"]) == (delay_seconds, str(round(1_000 * delay_seconds)))
    return info.reason, info.domain, facts, delay_seconds
