"""Going from one broker to another: what runs is settled first, and nobody is asked too often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from msgbroker.client import Message, MessageCenter
from msgbroker.client.connect.addresses import Backoff
from msgbroker.v1 import subscriber_pb2
from tests.support.eventually import eventually
from tests.support.fake_broker import FakeBroker, SubscribeCall

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

    assert caplog.messages[0] == (
        f"subscriber.broker_not_reached: group=SG address={mute.address} reason=BROKER_UNAVAILABLE: "
        "the broker did not answer within 0.05 s; trying others"
    )
    assert caplog.messages[1].startswith(f"subscriber.broker_found: group=SG address={broker.address} seconds=")


# --- how often --------------------------------------------------------------------------------------------------------


class Restless(FakeBroker):
    """A broker that attaches every stream, as all do first, and says something to end it."""

    def __init__(self, visits: list[float]) -> None:
        super().__init__()
        self.response: subscriber_pb2.SubscribeResponse | None = None
        self._visits = visits

    async def Subscribe(self, requests: Any, context: Any) -> AsyncIterator[subscriber_pb2.SubscribeResponse]:
        self._visits.append(0)
        yield subscriber_pb2.SubscribeResponse(attached=self.attached)
        if self.response is not None:
            yield self.response
            async for request in requests:
                if request.pause:
                    break


@pytest.fixture
def visits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return what happens in turn: 0 for a stream, else the bound of a wait, which takes no time here."""
    seen: list[float] = []

    def next_seconds(backoff: Backoff) -> float:
        seen.append(backoff._next_seconds)
        wait_for(backoff)
        return 0

    wait_for = Backoff.next_seconds
    monkeypatch.setattr(Backoff, "next_seconds", next_seconds)
    return seen


async def visit(center: MessageCenter, visits: list[float], waits: int) -> list[float]:
    center.subscriber(group="SG", topic="TP")(Gated().handle)
    await center.start()
    await eventually(lambda: sum(seen > 0 for seen in visits) >= waits)
    await center.close()
    return visits[: visits.index([seen for seen in visits if seen > 0][waits - 1]) + 1]


async def test_who_is_sent_in_circles_goes_ever_more_slowly(visits: list[float]) -> None:
    async with Restless(visits) as one, Restless(visits) as two:
        one.response, two.response = relocation_to(two), relocation_to(one)
        center = MessageCenter(one.address, backoff_initial_seconds=1, backoff_max_seconds=300)

        assert await visit(center, visits, 3) == [0, 0, 0, 0, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 4]


async def test_who_is_told_to_leave_by_every_broker_goes_ever_more_slowly(visits: list[float]) -> None:
    async with Restless(visits) as one:
        one.response = subscriber_pb2.SubscribeResponse(draining=True)
        center = MessageCenter(one.address, backoff_initial_seconds=1, backoff_max_seconds=300)

        assert await visit(center, visits, 3) == [0, 0, 0, 0, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 4]


async def test_a_broker_that_attaches_and_ends_the_stream_is_asked_ever_more_slowly(visits: list[float]) -> None:
    async with Restless(visits) as one:
        center = MessageCenter(one.address, backoff_initial_seconds=1, backoff_max_seconds=300)

        assert await visit(center, visits, 4) == [0, 1, 0, 2, 0, 4, 0, 8]


async def test_after_a_session_that_lasted_the_next_broker_is_asked_at_once(
    broker: FakeBroker, visits: list[float], put_forward: Callable[[float], None]
) -> None:
    center = MessageCenter(broker.address, backoff_initial_seconds=1, backoff_max_seconds=300, drain_timeout_seconds=0)
    async with center:
        handler = Gated()
        handler.gate.set()
        center.subscriber(group="SG", topic="TP")(handler.handle)
        await center.start()
        for is_long in (False, False, True):
            call = await broker.subscribe_calls.get()
            call.deliver(b"to know that it is attached")
            await call.settled(1)
            if is_long:
                put_forward(301)
            call.end()
        await broker.subscribe_calls.get()

    assert visits == [1, 2, 1]
