"""What a handler is at for long: it is kept, and where it is lost the handler stops, or answers when it comes again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from msgbroker.client import Message, MessageCenter
from msgbroker.client.handle.holding import Hold
from msgbroker.v1 import subscriber_pb2
from tests.support.eventually import eventually, eventually_blocking
from tests.support.fake_broker import FakeBroker, SubscribeCall, ThreadedBroker
from tests.support.fast_center import center_of

pytestmark = pytest.mark.slow

ACK = subscriber_pb2.VERDICT_ACK
HOUR_MS = 3_600_000


class Calls:
    """A handler, async or not, whose calls run until they are let go."""

    def __init__(self) -> None:
        self.begun: list[tuple[bytes, int]] = []
        self.cancelled: list[bytes] = []
        self.messages: list[Message] = []
        self.may_end = asyncio.Event()
        self.thread_may_end = threading.Event()

    async def handle(self, message: Message) -> None:
        self._note(message)
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled.append(message.body)
            raise

    def handle_in_thread(self, message: Message) -> None:
        self._note(message)
        self.thread_may_end.wait()

    def _note(self, message: Message) -> None:
        self.begun.append((message.body, message.attempt))
        self.messages.append(message)


@pytest.fixture
def calls() -> Calls:
    """Return a handler."""
    return Calls()


async def start(center: MessageCenter, broker: FakeBroker, handler: Any) -> SubscribeCall:
    """Start it with one call at a time, and return the stream."""
    center.subscriber(group="SG", topic="TP", concurrency=1)(handler)
    await center.start()
    return await broker.subscribe_calls.get()


def allow(broker: FakeBroker, ack_timeout_ms: int, handle_ms_max: int = HOUR_MS) -> None:
    broker.attached.ack_timeout_ms = ack_timeout_ms
    broker.attached.handle_ms_max = handle_ms_max


async def test_what_is_handled_is_kept_again_and_again_and_what_waits_is_not(broker: FakeBroker, calls: Calls) -> None:
    allow(broker, 300)
    async with center_of(broker) as center:
        call = await start(center, broker, calls.handle)
        call.deliver(b"slow", b"waits")
        await eventually(lambda: len(call.extended) >= 3)
        calls.may_end.set()

    assert set(call.extended) == {(0, 1, 300)}


async def test_a_handler_in_a_thread_keeps_what_it_is_at(broker: FakeBroker, calls: Calls) -> None:
    allow(broker, 300)
    async with center_of(broker) as center:
        call = await start(center, broker, calls.handle_in_thread)
        call.deliver(b"slow")
        await eventually(lambda: len(call.extended) >= 2)
        assert await asyncio.to_thread(calls.messages[0].extend, 7.5)
        await eventually(lambda: (0, 1, 7_500) in call.extended)
        calls.thread_may_end.set()
        assert await call.settled(1) == [(0, ACK, 1)]


async def test_a_handler_that_asks_for_time_and_lets_the_loop_turn_may_block_it_then(served: ThreadedBroker) -> None:
    heard: list[bool] = []

    async def on_its_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, served.loop))

    async with center_of(served) as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            message.extend(300)
            await asyncio.sleep(0.1)
            # This loop stands still meanwhile.
            heard.append(eventually_blocking(lambda: call.extended == [(0, 1, 300_000)]))

        await center.start()
        call: SubscribeCall = await on_its_loop(served.subscribe_calls.get())
        served.loop.call_soon_threadsafe(call.deliver, b"one")
        await eventually(lambda: heard)


@pytest.mark.parametrize("handle_ms_max", [0, 250])
async def test_nothing_is_kept_beyond_the_limit_and_it_is_spoken_of_once_before(
    broker: FakeBroker, calls: Calls, handle_ms_max: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "msgbroker.client")
    allow(broker, 300, handle_ms_max)
    async with center_of(broker) as center:
        call = await start(center, broker, calls.handle)
        call.deliver(b"slow")
        await eventually(lambda: calls.begun)
        await eventually(lambda: asyncio.get_running_loop().time() - working_since(center) > 0.9)
        calls.may_end.set()
        await call.settled(1)

    # Two thirds of the ack timeout fit into the limit.
    assert len(call.extended) in ({1, 2} if handle_ms_max else {0})

    (slow,) = [record.getMessage() for record in caplog.records]
    assert slow.startswith("handler.found_slow: group=SG topic=TP event_code=EC message_id=")
    assert slow.endswith("after 0.3 s it is given to others")


def working_since(center: MessageCenter) -> float:
    streams: Any = center._core._subscribers._streams.values()
    (since,) = [work.since for s in streams for r in s._handlers._runners.values() for work in r.works]
    return float(since)


def passing() -> Callable[[float], bool]:
    """Return what tells whether so many seconds have passed since now."""
    loop = asyncio.get_running_loop()
    since = loop.time()
    return lambda seconds: loop.time() - since >= seconds


async def test_an_async_handler_is_cancelled_when_its_message_was_taken_back(
    broker: FakeBroker, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "msgbroker.client")
    async with center_of(broker) as center:
        call = await start(center, broker, calls.handle)
        call.deliver(b"one", b"two")
        await eventually(lambda: calls.begun)
        call.push(subscriber_pb2.SubscribeResponse(taken_back=[taken_back(attempt=2)]))
        call.push(subscriber_pb2.SubscribeResponse(taken_back=[taken_back(attempt=1)]))
        await eventually(lambda: len(calls.begun) == 2, what="the worker goes on")
        assert not calls.messages[0].extend(1)
        calls.may_end.set()
        assert await call.settled(1) == [(1, ACK, 1)]

    assert calls.cancelled == [b"one"]
    (said,) = [record.getMessage() for record in caplog.records]
    assert "handler.taken_back: group=SG" in said
    assert said.endswith("its time is over; the handler is cancelled")


async def test_an_async_handler_is_cancelled_when_its_queue_went_to_another_broker(
    broker: FakeBroker, calls: Calls
) -> None:
    async with center_of(broker) as center:
        call = await start(center, broker, calls.handle)
        call.deliver(b"one")
        await eventually(lambda: calls.begun)
        lane = subscriber_pb2.LaneRevoked(queue_id=7, epoch=1)
        call.push(subscriber_pb2.SubscribeResponse(revoked=[lane]))
        await eventually(lambda: calls.cancelled == [b"one"])


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_what_comes_again_while_it_is_handled_is_answered_by_the_call_that_runs(
    broker: FakeBroker, calls: Calls, kind: str
) -> None:
    async with center_of(broker) as center:
        first = await start(center, broker, calls.handle if kind == "async" else calls.handle_in_thread)
        first.deliver(b"one")
        await eventually(lambda: calls.begun)
        first.end()
        second = await broker.subscribe_calls.get()
        second.deliver(b"one", attempt=2, epoch=2)
        second.deliver(b"two", first=1, epoch=2)
        await eventually(lambda: calls.messages[0].attempt == 2)
        calls.may_end.set()
        calls.thread_may_end.set()
        assert await second.settled(2) == [(0, ACK, 2), (1, ACK, 1)]

    assert calls.begun == [(b"one", 1), (b"two", 1)]
    assert first.settlements == []


async def test_a_call_in_a_thread_whose_time_is_over_answers_for_the_next_attempt_if_that_comes_here(
    broker: FakeBroker, calls: Calls
) -> None:
    async with center_of(broker) as center:
        call = await start(center, broker, calls.handle_in_thread)
        call.deliver(b"one")
        await eventually(lambda: calls.begun)
        call.push(subscriber_pb2.SubscribeResponse(taken_back=[taken_back(attempt=1)]))
        call.deliver(b"one", attempt=2)
        await eventually(lambda: calls.messages[0].attempt == 2)
        calls.thread_may_end.set()
        assert await call.settled(1) == [(0, ACK, 2)]

    assert calls.begun == [(b"one", 1)]


async def test_what_does_not_come_again_in_time_after_its_stream_has_ended_is_cancelled(
    broker: FakeBroker, calls: Calls
) -> None:
    allow(broker, 200)
    async with center_of(broker) as center:
        first = await start(center, broker, calls.handle)
        first.deliver(b"one")
        await eventually(lambda: calls.begun)
        first.end()
        second = await broker.subscribe_calls.get()
        await eventually(lambda: calls.cancelled == [b"one"])
        second.deliver(b"one", attempt=2)
        await eventually(lambda: calls.begun == [(b"one", 1), (b"one", 2)])
        calls.may_end.set()
        assert await second.settled(1) == [(0, ACK, 2)]


async def test_what_was_handled_before_its_stream_ended_is_handled_anew_when_it_comes_again(
    broker: FakeBroker, calls: Calls
) -> None:
    calls.may_end.set()
    async with center_of(broker) as center:
        first = await start(center, broker, calls.handle)
        first.deliver(b"one")
        await first.settled(1)
        first.end()
        second = await broker.subscribe_calls.get()
        second.deliver(b"one", attempt=2)
        assert await second.settled(1) == [(0, ACK, 2)]

    assert calls.begun == [(b"one", 1), (b"one", 2)]


async def test_what_has_come_again_and_is_lost_again_has_its_time_anew(broker: FakeBroker, calls: Calls) -> None:
    allow(broker, 3_000)
    async with center_of(broker) as center:
        first = await start(center, broker, calls.handle)
        first.deliver(b"one")
        await eventually(lambda: calls.begun)
        first.end()
        second = await broker.subscribe_calls.get()
        second.deliver(b"one", attempt=2)
        await eventually(lambda: calls.messages[0].attempt == 2)
        has_passed = passing()
        await eventually(lambda: has_passed(2.4))
        second.end()
        third = await broker.subscribe_calls.get()
        await eventually(lambda: has_passed(3.2))
        third.deliver(b"one", attempt=3)
        await eventually(lambda: calls.messages[0].attempt == 3)
        calls.may_end.set()
        assert await third.settled(1) == [(0, ACK, 3)]

    assert calls.begun == [(b"one", 1)]


async def test_a_call_that_was_cancelled_ends_undisturbed_and_answers_for_nothing_that_comes_again(
    broker: FakeBroker,
) -> None:
    allow(broker, 200)
    begun: list[int] = []
    cleaned: list[str] = []
    cleans, may_be_clean = asyncio.Event(), asyncio.Event()

    async def handle(message: Message) -> None:
        begun.append(message.attempt)
        if message.attempt > 1:
            return
        try:
            await asyncio.Event().wait()
        finally:
            cleans.set()
            await may_be_clean.wait()
            cleaned.append("all")

    async with center_of(broker) as center:
        center.subscriber(group="SG", topic="TP", concurrency=2)(handle)
        await center.start()
        first = await broker.subscribe_calls.get()
        first.deliver(b"one")
        await eventually(lambda: begun)
        first.push(subscriber_pb2.SubscribeResponse(taken_back=[taken_back(attempt=1)]))
        await cleans.wait()
        first.end()
        second = await broker.subscribe_calls.get()
        has_passed = passing()
        second.deliver(b"one", attempt=2)
        await eventually(lambda: begun == [1, 2], what="another call")
        assert await second.settled(1) == [(0, ACK, 2)]
        await eventually(lambda: has_passed(0.3))
        may_be_clean.set()
        await eventually(lambda: cleaned)


async def test_a_handler_that_will_not_be_cancelled_leaves_nothing_of_it_to_the_next_one(broker: FakeBroker) -> None:
    cancellations: list[int] = []
    begun = asyncio.Event()

    async def handle(message: Message) -> None:
        worker = asyncio.current_task()
        assert worker is not None
        cancellations.append(worker.cancelling())
        if message.body == b"one":
            begun.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    async with center_of(broker) as center:
        call = await start(center, broker, handle)
        call.deliver(b"one", b"two")
        await begun.wait()
        call.push(subscriber_pb2.SubscribeResponse(taken_back=[taken_back(attempt=1)]))
        assert await call.settled(1) == [(1, ACK, 1)]

    assert cancellations == [0, 0]


async def test_what_comes_after_the_ack_timeout_was_made_shorter_is_kept_in_time(
    broker: FakeBroker, calls: Calls
) -> None:
    allow(broker, 60_000)
    async with center_of(broker) as center:
        center.subscriber(group="SG", topic="TP", concurrency=2)(calls.handle)
        await center.start()
        call = await broker.subscribe_calls.get()
        call.deliver(b"before")
        await eventually(lambda: calls.begun)
        shorter = subscriber_pb2.Attached(unsettled_max=1_000, ack_timeout_ms=1_000, handle_ms_max=HOUR_MS)
        call.push(subscriber_pb2.SubscribeResponse(attached=shorter))
        has_passed = passing()
        call.deliver(b"after", first=1)
        await eventually(lambda: (1, 1, 1_000) in call.extended)
        assert not has_passed(1.0)
        calls.may_end.set()


@pytest.mark.parametrize("ack_timeout_seconds", [1.0, 10.0, 60.0, 43_200.0])
def test_what_is_begun_at_the_last_moment_is_looked_at_before_it_is_late(ack_timeout_seconds: float) -> None:
    hold = Hold(ack_timeout_seconds, 3_600.0)

    assert hold.start_seconds + hold.look_seconds < ack_timeout_seconds
    assert hold.extend_seconds + hold.look_seconds < ack_timeout_seconds


def taken_back(attempt: int) -> subscriber_pb2.TakenBack:
    return subscriber_pb2.TakenBack(queue_id=7, epoch=1, attempt=attempt, ranges=[0, 0])
