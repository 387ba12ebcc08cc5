"""Going from one broker to another: what runs is settled first, and nobody is asked too often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from msgbroker.client import Message, MessageCenter
from msgbroker.v1 import subscriber_pb2
from tests.unit.client.fake_broker import FakeBroker, SubscribeCall

ACK, RELEASE = 1, 3


class Gated:
    """A handler that waits at its gate."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()

    async def handle(self, message: Message) -> None:
        self.begun.set()
        await self.gate.wait()


def center_of(*brokers: FakeBroker, **options: Any) -> MessageCenter:
    options.setdefault("drain_timeout_seconds", 0.5)
    return MessageCenter([broker.address for broker in brokers], backoff_initial_seconds=0.001, **options)


async def hold_one(center: MessageCenter, broker: FakeBroker, handler: Gated) -> SubscribeCall:
    """Start, and return the stream whose first message is at its handler; the second waits."""
    center.subscriber(group="SG", topic="TP", concurrency=1)(handler.handle)
    await center.start()
    call = await broker.subscribe_calls.get()
    call.deliver(b"running", b"waiting")
    await handler.begun.wait()
    return call


def relocation_to(broker: FakeBroker) -> subscriber_pb2.SubscribeResponse:
    return subscriber_pb2.SubscribeResponse(relocation=subscriber_pb2.Relocation(addresses=[broker.address]))


# --- what runs --------------------------------------------------------------------------------------------------------


async def test_who_is_sent_to_another_broker_settles_what_it_holds_before_it_goes(broker: FakeBroker) -> None:
    handler = Gated()
    async with FakeBroker() as other, center_of(broker) as center:
        call = await hold_one(center, broker, handler)
        call.push(relocation_to(other))
        assert await call.settled(1) == [(1, RELEASE, 1)]
        assert call.paused
        handler.gate.set()
        assert await call.settled(2) == [(0, ACK, 1), (1, RELEASE, 1)]
        await call.half_closed.wait()
        await other.subscribe_calls.get()


@pytest.mark.parametrize("is_relocated", [True, False], ids=["relocated", "draining"])
async def test_a_handler_has_the_time_it_needs_when_its_broker_sends_it_away(
    broker: FakeBroker, put_forward: Callable[[float], None], *, is_relocated: bool
) -> None:
    handler = Gated()
    async with FakeBroker() as other, center_of(broker, other) as center:
        call = await hold_one(center, broker, handler)
        call.push(relocation_to(other) if is_relocated else subscriber_pb2.SubscribeResponse(draining=True))
        assert await call.settled(1) == [(1, RELEASE, 1)]
        put_forward(50)
        # Whatever a clock could have ended by now, it would not hear this.
        call.deliver(b"too late", first=2)
        await call.settled(2)
        handler.gate.set()
        assert await call.settled(3) == [(0, ACK, 1), (1, RELEASE, 1), (2, RELEASE, 1)]
        await other.subscribe_calls.get()


async def test_a_handler_that_takes_longer_than_its_message_is_kept_for_holds_nobody_up(
    broker: FakeBroker, put_forward: Callable[[float], None]
) -> None:
    handler = Gated()
    async with FakeBroker() as other, center_of(broker, other) as center:
        call = await hold_one(center, broker, handler)
        call.push(subscriber_pb2.SubscribeResponse(draining=True))
        await call.settled(1)
        put_forward(61)
        await other.subscribe_calls.get()
        handler.gate.set()


async def test_a_broker_that_ends_the_stream_is_not_waited_for(broker: FakeBroker) -> None:
    handler = Gated()
    async with FakeBroker() as other, center_of(broker, other) as center:
        call = await hold_one(center, broker, handler)
        call.push(subscriber_pb2.SubscribeResponse(draining=True))
        await call.settled(1)
        call.end()
        moved = await other.subscribe_calls.get()
        handler.gate.set()
        moved.deliver(b"again", first=5)
        assert await moved.settled(1) == [(5, ACK, 1)]


# --- where to ---------------------------------------------------------------------------------------------------------


class Mute(FakeBroker):
    """A broker that takes the stream and says nothing."""

    async def Subscribe(self, requests: Any, context: Any) -> AsyncIterator[subscriber_pb2.SubscribeResponse]:
        await asyncio.Event().wait()
        yield subscriber_pb2.SubscribeResponse()


async def test_a_broker_that_never_attaches_is_left_for_the_next(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with Mute() as mute, center_of(mute, broker, answer_timeout_seconds=0.05) as center:
        center.subscriber(group="SG", topic="TP")(Gated().handle)
        await asyncio.wait_for(center.start(), 30)
        await broker.subscribe_calls.get()

    assert f"cannot reach {mute.address} (the broker did not answer within 0.05 s), trying again" in caplog.messages
