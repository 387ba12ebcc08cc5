"""Subscribing through a (fake) broker: verdicts, credit, revocation, draining, moving."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from pydantic import BaseModel

from msgbroker.client import (
    InvalidSettingError,
    Message,
    MessageCenter,
    Reject,
    Release,
    RetryAfter,
)
from msgbroker.v1 import subscriber_pb2
from tests.support.fake_broker import FakeBroker
from tests.support.fast_center import center_of

ACK, RETRY, RELEASE, REJECT = 1, 2, 3, 4


class Order(BaseModel):
    number: int


async def test_returning_acknowledges_in_ranges(broker: FakeBroker) -> None:
    seen: list[bytes] = []
    async with center_of(broker) as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            seen.append(message.body)

        await center.start()
        call = await broker.subscribe_calls.get()
        call.deliver(*[str(n).encode() for n in range(100)], first=5)
        settled = await call.settled(100)

    assert seen == [str(n).encode() for n in range(100)]
    assert settled == [(offset, ACK, 1) for offset in range(5, 105)]
    assert call.settlements[0].ranges[0] == 5
    assert len(call.settlements) < 10
    assert call.hello is not None
    assert (call.hello.group, call.hello.instance_id) == ("SG", center.instance_id)


async def test_each_way_to_end_a_handler_has_its_verdict(broker: FakeBroker) -> None:
    async with center_of(broker) as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> object:
            match message.body:
                case b"raise":
                    raise ValueError("no luck")
                case b"reject":
                    raise Reject("never")
                case b"after":
                    raise RetryAfter(1.5)
                case b"now":
                    raise RetryAfter(0)
                case b"release":
                    raise Release(2)
                case b"cancelled":
                    raise asyncio.CancelledError
                case b"returned":
                    return Reject("returned")
            return "anything"

        await center.start()
        call = await broker.subscribe_calls.get()
        call.deliver(b"ok", b"raise", b"reject", b"after", b"now", b"release", b"cancelled", b"returned", attempt=3)
        settled = await call.settled(8)

    verdicts = [ACK, RETRY, REJECT, RETRY, RETRY, RELEASE, RETRY, REJECT]
    assert settled == [(offset, verdict, 3) for offset, verdict in enumerate(verdicts)]
    said = {settlement.ranges[0]: settlement for settlement in call.settlements}
    assert said[1].error == "ValueError: no luck"
    assert (said[1].delay_ms, said[1].immediately) == (0, False)
    assert (said[2].error, said[2].unreadable, said[3].delay_ms, said[5].delay_ms) == ("never", False, 1_500, 2_000)
    assert (said[4].delay_ms, said[4].immediately) == (0, True)


async def test_bodies_come_as_the_annotation_asks(broker: FakeBroker) -> None:
    seen: list[object] = []
    async with center_of(broker) as center:

        @center.subscriber(group="SG", topic="TP", event_code="BYTES")
        async def take_bytes(body: bytes) -> None:
            seen.append(body)

        @center.subscriber(group="SG", topic="TP", event_code="STR")
        async def take_text(body: str) -> None:
            seen.append(body)

        @center.subscriber(group="SG", topic="TP", event_code="DICT")
        async def take_dict(body: dict[str, Any], message: Message) -> None:
            seen.append((body, message.event_code))

        @center.subscriber(group="SG", topic="TP", event_code="MODEL")
        async def take_model(body: Order) -> None:
            seen.append(body)

        await center.start()
        call = await broker.subscribe_calls.get()
        call.deliver(b"\xff", event_code="BYTES", first=0)
        call.deliver("文".encode(), b"\xff", event_code="STR", first=1)
        call.deliver(b'{"number": 1}', b"[1]", b"{", event_code="DICT", first=3)
        call.deliver(b'{"number": 1}', b'{"number": "x"}', event_code="MODEL", first=6)
        settled = await call.settled(8)

    assert [verdict for _, verdict, _ in settled] == [ACK, ACK, REJECT, ACK, REJECT, REJECT, ACK, REJECT]
    assert {each.unreadable for each in call.settlements if each.verdict == REJECT} == {True}
    assert all(thing in seen for thing in (b"\xff", "文", ({"number": 1}, "DICT"), Order(number=1)))


async def test_a_type_without_a_handler_here_is_released_with_a_delay(broker: FakeBroker) -> None:
    async with center_of(broker) as center:

        @center.subscriber(group="SG", topic="TP", event_code="KNOWN")
        async def handle(message: Message) -> None: ...

        await center.start()
        call = await broker.subscribe_calls.get()
        call.deliver(b"", event_code="NEW")
        assert await call.settled(1) == [(0, RELEASE, 1)]

    assert call.settlements[0].delay_ms > 0


async def test_handlers_that_are_not_async_run_in_threads(broker: FakeBroker) -> None:
    names: list[str] = []
    async with center_of(broker) as center:

        @center.subscriber(group="SG", topic="TP", concurrency=2)
        def handle(body: str) -> None:
            names.append(threading.current_thread().name)

        await center.start()
        call = await broker.subscribe_calls.get()
        call.deliver(b"1", b"2", b"3")
        assert [verdict for _, verdict, _ in await call.settled(3)] == [ACK] * 3

    assert all(name.startswith("msgcenter-handler") for name in names)


async def test_no_more_calls_run_at_once_than_concurrency_allows(broker: FakeBroker) -> None:
    running: list[int] = []
    reached = asyncio.Event()
    gate = asyncio.Event()
    async with center_of(broker) as center:

        @center.subscriber(group="SG", topic="TP", concurrency=3)
        async def handle_slowly(body: bytes) -> None:
            running.append(1)
            if len(running) == 3:
                reached.set()
            await gate.wait()

        await center.start()
        call = await broker.subscribe_calls.get()
        call.deliver(*[b""] * 10)
        await reached.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(running) == 3
        gate.set()
        await call.settled(10)


async def test_a_handler_past_its_timeout_is_tried_again(broker: FakeBroker) -> None:
    async with center_of(broker) as center:

        @center.subscriber(group="SG", topic="TP", timeout_seconds=0.01)
        async def handle(message: Message) -> None:
            await asyncio.Event().wait()

        await center.start()
        call = await broker.subscribe_calls.get()
        call.deliver(b"")
        assert await call.settled(1) == [(0, RETRY, 1)]


async def test_what_was_not_started_is_dropped_when_its_lane_is_revoked(broker: FakeBroker) -> None:
    started: list[bytes] = []
    gate = asyncio.Event()
    running = asyncio.Event()
    async with center_of(broker) as center:

        @center.subscriber(group="SG", topic="TP", concurrency=1)
        async def handle(body: bytes) -> None:
            started.append(body)
            running.set()
            await gate.wait()

        await center.start()
        call = await broker.subscribe_calls.get()
        call.deliver(b"old running", b"old waiting", epoch=1)
        await running.wait()
        call.push(subscriber_pb2.SubscribeResponse(revoked=[subscriber_pb2.LaneRevoked(queue_id=7, epoch=1)]))
        call.deliver(b"new", epoch=2, first=9)
        while not any(runner._waiting and runner._waiting[-1].body == b"new" for runner in _runners(center)):
            await asyncio.sleep(0)
        gate.set()
        assert await call.settled(1) == [(9, ACK, 1)]

    assert started == [b"old running", b"new"]


async def test_verdicts_of_an_old_stream_do_not_travel_on_the_new_one(broker: FakeBroker) -> None:
    gate = asyncio.Event()
    running = asyncio.Event()
    seen: list[bytes] = []
    async with center_of(broker) as center:

        @center.subscriber(group="SG", topic="TP", concurrency=1)
        async def handle(body: bytes) -> None:
            seen.append(body)
            running.set()
            if body == b"slow":
                await gate.wait()

        await center.start()
        first = await broker.subscribe_calls.get()
        first.deliver(b"slow", b"dropped")
        await running.wait()
        first.end()
        second = await broker.subscribe_calls.get()
        gate.set()
        second.deliver(b"again", first=5)
        assert await second.settled(1) == [(5, ACK, 1)]

    assert seen == [b"slow", b"again"]


async def test_a_group_moves_where_the_broker_sends_it(broker: FakeBroker) -> None:
    async with FakeBroker() as other, center_of(broker) as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None: ...

        await center.start()
        call = await broker.subscribe_calls.get()
        call.push(subscriber_pb2.SubscribeResponse(relocation=subscriber_pb2.Relocation(addresses=[other.address])))
        moved = await other.subscribe_calls.get()
        moved.deliver(b"1")
        assert await moved.settled(1) == [(0, ACK, 1)]


async def test_a_draining_broker_gets_its_verdicts_and_is_left(broker: FakeBroker) -> None:
    gate = asyncio.Event()
    running = asyncio.Event()
    async with FakeBroker() as other, center_of(broker, other) as center:

        @center.subscriber(group="SG", topic="TP", concurrency=1)
        async def handle(message: Message) -> None:
            running.set()
            await gate.wait()

        await center.start()
        call = await broker.subscribe_calls.get()
        call.deliver(b"running", b"waiting")
        await running.wait()
        call.push(subscriber_pb2.SubscribeResponse(draining=True))
        assert await call.settled(1) == [(1, RELEASE, 1)]
        gate.set()
        await call.half_closed.wait()
        assert await call.settled(2) == [(0, ACK, 1), (1, RELEASE, 1)]
        await other.subscribe_calls.get()


async def test_closing_finishes_what_runs_and_gives_back_the_rest(broker: FakeBroker) -> None:
    gate = asyncio.Event()
    running = asyncio.Event()
    center = center_of(broker, drain_timeout_seconds=5)

    @center.subscriber(group="SG", topic="TP", concurrency=1)
    async def handle(message: Message) -> None:
        running.set()
        await gate.wait()

    await center.start()
    call = await broker.subscribe_calls.get()
    call.deliver(b"running", b"waiting")
    await running.wait()
    closing = asyncio.ensure_future(center.close())
    assert await call.settled(1) == [(1, RELEASE, 1)]
    assert call.paused
    call.deliver(b"too late", first=2)
    assert await call.settled(2) == [(1, RELEASE, 1), (2, RELEASE, 1)]
    gate.set()
    await closing

    assert await call.settled(3) == [(0, ACK, 1), (1, RELEASE, 1), (2, RELEASE, 1)]


async def test_closing_gives_back_a_handler_that_does_not_end_in_time(broker: FakeBroker) -> None:
    running = asyncio.Event()
    center = center_of(broker, drain_timeout_seconds=0.05)

    @center.subscriber(group="SG", topic="TP")
    async def handle(message: Message) -> None:
        running.set()
        await asyncio.Event().wait()

    await center.start()
    call = await broker.subscribe_calls.get()
    call.deliver(b"")
    await running.wait()
    await center.close()

    assert await call.settled(1) == [(0, RELEASE, 1)]


async def test_run_ends_when_the_center_is_closed(broker: FakeBroker) -> None:
    center = center_of(broker)

    @center.subscriber(group="SG", topic="TP")
    async def handle(message: Message) -> None: ...

    running = asyncio.ensure_future(center.run())
    await broker.subscribe_calls.get()
    await center.close()
    await running


async def test_credit_starts_at_what_the_handlers_can_work_on(broker: FakeBroker) -> None:
    async with center_of(broker) as center:

        @center.subscriber(group="SG", topic="TP", concurrency=7)
        async def handle(message: Message) -> None: ...

        @center.subscriber(group="SG_FIXED", topic="TP", concurrency=7, credit=33)
        async def handle_fixed(message: Message) -> None: ...

        await center.start()
        calls = [await broker.subscribe_calls.get() for _ in range(2)]

    assert {call.hello.group: call.credits for call in calls if call.hello} == {"SG": [7], "SG_FIXED": [33]}


def test_a_class_local_to_a_function_needs_the_body_option() -> None:
    class Local(BaseModel):
        number: int

    center = MessageCenter()
    with pytest.raises(InvalidSettingError, match="body="):

        @center.subscriber(group="SG", topic="TP")
        async def handle(body: Local) -> None: ...

    @center.subscriber(group="SG", topic="TP", body=Local)
    async def handle_too(body: Local) -> None: ...


def test_two_handlers_of_one_type_in_one_group_are_refused() -> None:
    center = MessageCenter()

    @center.subscriber(group="SG", topic="TP")
    async def handle(message: Message) -> None: ...

    with pytest.raises(InvalidSettingError, match="exists already"):
        center.subscriber(group="SG", topic="TP")(handle)


def _runners(center: MessageCenter) -> list[Any]:
    streams: Any = center._core._subscribers._streams.values()
    return [runner for stream in streams for runner in stream._handlers._runners.values()]
