"""So many streams and calls at a time, and none that only occupies its place: others are told where to go."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from confdb.services import ConfigService
from msgbroker.client import MessageCenter
from msgbroker.contract import limits
from msgbroker.server.app import Broker
from msgbroker.v1 import message_pb2, publisher_pb2, publisher_pb2_grpc, subscriber_pb2_grpc
from msgdb.reports.alarms import AlarmKind
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import PAID, TOPIC, register_group, subscribed
from tests.support.eventually import eventually
from tests.support.raw_streams import raw_publisher, raw_subscriber

SAID = message_pb2.Message(topic=TOPIC, event_code=PAID, body=b"x")


@pytest.fixture
async def channel(trade: ConfigService, broker: Broker) -> AsyncIterator[grpc.aio.Channel]:
    """Return a channel to the broker."""
    async with grpc.aio.insecure_channel(broker.address) as channel:
        yield channel


def reason_of(error: grpc.aio.AioRpcError) -> tuple[str, str]:
    """Return status and reason of a refusal."""
    return error.code().name, str(dict(error.trailing_metadata() or ())["msgcenter-reason"])


def alarms(broker: Broker) -> list[tuple[AlarmKind, str]]:
    """Return what stands at the broker."""
    return [(alarm.kind, alarm.thing) for alarm in broker.alarms.standing]


async def test_a_publisher_that_finds_no_place_goes_to_another_broker(
    trade: ConfigService, start_broker: StartBroker
) -> None:
    full, other = await start_broker(publisher_streams_max=1), await start_broker()
    async with raw_publisher(full.address) as raw:
        await raw.send(1, [SAID], publisher_id=secrets.token_bytes(16))
        await raw.answer()
        async with raw_publisher(full.address) as refused:
            # The refusal may come before the frame has left.
            with suppress(grpc.aio.AioRpcError):
                await refused.send(1, [SAID], publisher_id=secrets.token_bytes(16))
            code, metadata = await refused.end()
        async with MessageCenter([full.address, other.address]) as center:
            await center.publish(TOPIC, PAID, "goes to the other one")
            assert len(other.grpc_door.publisher._streams) == 1
        await eventually(lambda: alarms(full) == [(AlarmKind.STREAMS_FULL, "publisher streams")])

    assert (code.name, metadata["msgcenter-reason"]) == ("RESOURCE_EXHAUSTED", "TOO_MANY_STREAMS")
    assert metadata["grpc-retry-pushback-ms"] == "1000"
    await eventually(lambda: full.grpc_door.publisher.places.count == 0)
    async with MessageCenter(full.address) as center:
        await center.publish(TOPIC, PAID, "there is a place again")


async def test_a_subscriber_that_finds_no_place_goes_to_another_broker(
    trade: ConfigService, start_broker: StartBroker
) -> None:
    full, other = await start_broker(subscriber_streams_max=1), await start_broker()
    await register_group(trade)
    await register_group(trade, "SG_OTHER")
    async with raw_subscriber(full.address, "SG_OTHER") as raw:
        await eventually(lambda: raw.told)
        async with subscribed([full.address, other.address]) as got:  # type: ignore[arg-type]
            async with MessageCenter(other.address) as center:
                await center.publish(TOPIC, PAID, "a")
            await got.until(1)
            assert len(other.grpc_door.subscriber._instances) == 1
        await eventually(lambda: alarms(full) == [(AlarmKind.STREAMS_FULL, "subscriber streams")])


async def test_a_stream_that_says_nothing_loses_its_place(
    trade: ConfigService, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REQUEST_SECONDS_MAX", 0.5)
    async with grpc.aio.insecure_channel(broker.address) as channel:
        stubs: list[Any] = [
            publisher_pb2_grpc.PublisherStub(channel).PublishStream,
            subscriber_pb2_grpc.SubscriberStub(channel).Subscribe,
            # A watcher that does not even say of what.
            channel.stream_stream("/grpc.health.v1.Health/Watch"),
        ]
        for stub in stubs:
            call = stub()
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await call.read()
            assert reason_of(raised.value) == ("UNAVAILABLE", "UNFINISHED")
    assert (broker.grpc_door.publisher.places.count, broker.grpc_door.subscriber.places.count) == (0, 0)


async def test_a_call_that_finds_no_place_is_refused_and_others_follow(
    trade: ConfigService, start_broker: StartBroker
) -> None:
    broker = await start_broker(calls_max=1)
    async with grpc.aio.insecure_channel(broker.address) as channel:
        publisher: Any = publisher_pb2_grpc.PublisherStub(channel)

        async def outcome() -> tuple[str, str]:
            return await _outcome(publisher.Publish(publisher_pb2.PublishRequest(messages=[SAID])))

        async def is_stored() -> bool:
            return await outcome() == ("", "")

        # Called as streams, so that they can be begun without a message; they are of the same connection as the others.
        sitting: list[Any] = [channel.stream_unary("/msgbroker.v1.Publisher/Publish")() for _ in range(5)]
        await eventually(lambda: sum(call.done() for call in sitting) == 4)
        assert await outcome() == ("RESOURCE_EXHAUSTED", "TOO_MANY_CALLS")
        await eventually(lambda: alarms(broker) == [(AlarmKind.STREAMS_FULL, "calls")])
        for call in sitting:
            call.cancel()
        await eventually(is_stored)


async def test_callers_that_send_slowly_keep_others_waiting_for_a_bounded_time(
    trade: ConfigService, broker: Broker, channel: grpc.aio.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REQUEST_SECONDS_MAX", 1.0)
    method = "/msgbroker.v1.Publisher/Publish"
    # Called as a stream, so that a call can be begun without its message.
    silent: list[Any] = [channel.stream_unary(method)() for _ in range(70)]
    ended = [asyncio.ensure_future(_outcome(call)) for call in silent]
    publisher: Any = publisher_pb2_grpc.PublisherStub(channel)
    await asyncio.sleep(0)

    async def is_stored() -> bool:
        try:
            return bool((await publisher.Publish(publisher_pb2.PublishRequest(messages=[SAID]))).queue_ids)
        except grpc.aio.AioRpcError:
            # Its turn did not come in time.
            return False

    await eventually(is_stored)
    assert {await outcome for outcome in ended} == {("UNAVAILABLE", "UNFINISHED")}


async def _outcome(call: Any) -> tuple[str, str]:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return reason_of(error)
    return "", ""


async def test_a_call_without_a_message_is_refused(channel: grpc.aio.Channel) -> None:
    call: Any = channel.stream_unary("/msgbroker.v1.Publisher/Publish")()
    await call.done_writing()
    assert await _outcome(call) == ("INVALID_ARGUMENT", "INVALID_FIELD")


async def test_a_call_that_is_larger_than_a_broker_takes_at_once_is_refused_in_plain_words(
    channel: grpc.aio.Channel,
) -> None:
    publisher: Any = publisher_pb2_grpc.PublisherStub(channel)
    most = publisher_pb2.PublishRequest(
        messages=[message_pb2.Message(topic=TOPIC, event_code=PAID, body=b"x" * 8_000)] * 65
    )
    assert len((await publisher.Publish(most)).queue_ids) == 65
    most.messages.append(most.messages[0])
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await publisher.Publish(most)

    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(limits.GRPC_MESSAGE_BYTES_MAX) in str(raised.value.details())


async def test_watchers_of_its_health_are_told_whatever_others_do(broker: Broker) -> None:
    async with AsyncExitStack() as stack:
        watchers = []
        for _ in range(3):
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(broker.address))
            stub: Any = health_pb2_grpc.HealthStub(channel)
            watchers.append(stub.Watch(health_pb2.HealthCheckRequest(service="msgbroker.v1.Publisher")))
        assert {(await watcher.read()).status for watcher in watchers} == {health_pb2.HealthCheckResponse.SERVING}
        watchers.pop().cancel()
        broker.grpc_door.health.leave()
        assert {(await watcher.read()).status for watcher in watchers} == {health_pb2.HealthCheckResponse.NOT_SERVING}


async def test_streams_of_reflection_are_bounded(broker: Broker, channel: grpc.aio.Channel) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)  # type: ignore[arg-type]
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    calls = []
    for _ in range(20):
        calls.append(stub.ServerReflectionInfo())
        await calls[-1].write(request)
        await calls[-1].read()
    refused = stub.ServerReflectionInfo()
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await refused.read()
    assert reason_of(raised.value) == ("RESOURCE_EXHAUSTED", "TOO_MANY_STREAMS")
    for call in calls:
        call.cancel()
