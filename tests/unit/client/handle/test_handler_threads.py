"""Handlers that are not async: what has a thread is begun, and each group has threads of its own."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from msgbroker.client import Message, MessageCenter
from msgbroker.client.handle import threads as threads_module
from tests.support.eventually import eventually
from tests.support.fake_broker import FakeBroker, SubscribeCall

ACK, RETRY, RELEASE = 1, 2, 3


class Gates:
    """A handler that waits in its thread until its message may go on."""

    def __init__(self) -> None:
        self.called: list[bytes] = []
        self._gates: dict[bytes, threading.Event] = {}

    def open(self, *bodies: bytes) -> None:
        for body in bodies:
            self._gate(body).set()

    def handle(self, message: Message) -> None:
        self.called.append(message.body)
        assert self._gate(message.body).wait(60)

    def _gate(self, body: bytes) -> threading.Event:
        return self._gates.setdefault(body, threading.Event())


@pytest.fixture
def gates() -> Iterator[Gates]:
    """Return a handler for the test; whatever still waits in it is let go at the end."""
    gates = Gates()
    yield gates
    gates.open(*gates.called)


@contextmanager
def threads_max(count: int) -> Iterator[None]:
    """Let a group have so many threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads_module, "THREADS_MAX", count)
        yield


async def start(center: MessageCenter, broker: FakeBroker) -> SubscribeCall:
    await center.start()
    return await broker.subscribe_calls.get()


def center_of(broker: FakeBroker, drain_timeout_seconds: float = 0.5) -> MessageCenter:
    return MessageCenter(broker.address, drain_timeout_seconds=drain_timeout_seconds)


def waiting_in(center: MessageCenter) -> list[bytes]:
    streams: Any = center._core._subscribers._streams.values()
    runners = [runner for stream in streams for runner in stream._handlers._runners.values()]
    return [message.body for runner in runners for message in runner._waiting]


async def test_what_waits_for_a_thread_is_not_said_to_be_begun(
    broker: FakeBroker, gates: Gates, put_forward: Callable[[float], None]
) -> None:
    with threads_max(2):
        async with center_of(broker) as center:
            center.subscriber(group="SG", topic="TP", event_code="EC", concurrency=10)(gates.handle)
            call = await start(center, broker)
            call.deliver(b"0", b"1", b"2", b"3", b"4")
            await eventually(lambda: len(call.begun) >= 2)
            put_forward(1)
            # With its verdict goes all that is begun.
            call.deliver(b"", event_code="EC_UNHANDLED", first=5)
            await call.settled(1)
            assert (call.begun, sorted(gates.called)) == ([(0, 1), (1, 1)], [b"0", b"1"])
            gates.open(b"0", b"1", b"2", b"3", b"4")
            await call.settled(6)


async def test_a_handler_has_its_time_from_when_it_has_a_thread(
    broker: FakeBroker, gates: Gates, put_forward: Callable[[float], None]
) -> None:
    with threads_max(1):
        async with center_of(broker) as center:
            center.subscriber(group="SG", topic="TP", timeout_seconds=10)(gates.handle)
            call = await start(center, broker)
            call.deliver(b"hangs", b"waits")
            await eventually(lambda: gates.called)
            put_forward(11)
            assert await call.settled(1) == [(0, RETRY, 1)]
            # Its thread cannot be stopped, and is not free.
            put_forward(9)
            gates.open(b"hangs", b"waits")
            assert await call.settled(2) == [(0, RETRY, 1), (1, ACK, 1)]

    assert gates.called == [b"hangs", b"waits"]


@pytest.mark.slow
async def test_handlers_that_hang_do_not_hold_up_those_of_another_group(broker: FakeBroker, gates: Gates) -> None:
    with threads_max(1):
        async with center_of(broker) as center:
            for group in ("SG_A", "SG_B"):
                center.subscriber(group=group, topic="TP")(gates.handle)
            calls = [await start(center, broker), await broker.subscribe_calls.get()]
            calls[0].deliver(b"hangs")
            await eventually(lambda: gates.called)
            gates.open(b"fine")
            calls[1].deliver(b"fine")
            assert await calls[1].settled(1) == [(0, ACK, 1)]


async def test_the_handlers_of_a_group_get_its_threads_in_the_order_they_asked(
    broker: FakeBroker, gates: Gates
) -> None:
    with threads_max(1):
        async with center_of(broker) as center:
            for event_code in ("EC", "EC_OTHER"):
                center.subscriber(group="SG", topic="TP", event_code=event_code)(gates.handle)
            call = await start(center, broker)
            call.deliver(b"0", b"1", b"2")
            await eventually(lambda: gates.called)
            call.deliver(b"other", first=3, event_code="EC_OTHER")
            await eventually(lambda: b"other" in waiting_in(center))
            gates.open(b"0", b"1", b"2", b"other")
            await call.settled(4)

    assert gates.called.index(b"other") < 3


async def test_what_waits_for_a_thread_is_given_back_when_the_center_closes(broker: FakeBroker, gates: Gates) -> None:
    with threads_max(1):
        center = center_of(broker, drain_timeout_seconds=30)
        center.subscriber(group="SG", topic="TP")(gates.handle)
        call = await start(center, broker)
        call.deliver(b"running", b"waiting")
        await eventually(lambda: gates.called)
        closing = asyncio.ensure_future(center.close())
        assert await call.settled(1) == [(1, RELEASE, 1)]
        gates.open(b"running")
        await closing

    assert await call.settled(2) == [(0, ACK, 1), (1, RELEASE, 1)]
    assert gates.called == [b"running"]


async def test_a_thread_that_hangs_keeps_nothing_waiting_that_was_given_back(
    broker: FakeBroker, gates: Gates, put_forward: Callable[[float], None]
) -> None:
    with threads_max(1):
        center = center_of(broker, drain_timeout_seconds=60)
        center.subscriber(group="SG", topic="TP", timeout_seconds=30)(gates.handle)
        call = await start(center, broker)
        call.deliver(b"hangs", b"waiting")
        await eventually(lambda: gates.called)
        put_forward(31)
        await call.settled(1)
        # Nothing is at work for all it knows: there is nothing to wait a minute for.
        await asyncio.wait_for(center.close(), 30)

    assert await call.settled(2) == [(0, RETRY, 1), (1, RELEASE, 1)]


async def test_threads_are_used_again_and_end_with_the_center(broker: FakeBroker) -> None:
    used: set[int | None] = set()
    before = threading.active_count()
    async with center_of(broker) as center:

        @center.subscriber(group="SG", topic="TP", concurrency=3)
        def handle(message: Message) -> None:
            used.add(threading.current_thread().ident)

        call = await start(center, broker)
        for first in range(0, 100, 10):
            call.deliver(*[b""] * 10, first=first)
        await call.settled(100)

    assert len(used) <= 3
    await eventually(lambda: threading.active_count() <= before)


async def test_what_a_thread_returns_too_late_is_let_go(
    broker: FakeBroker, gates: Gates, put_forward: Callable[[float], None]
) -> None:
    made: list[Coroutine[None, None, None]] = []

    async def handle(message: Message) -> None:
        raise AssertionError("nobody waits for this any more")

    def handle_late(message: Message) -> Coroutine[None, None, None]:
        gates.handle(message)
        made.append(handle(message))
        return made[0]

    async with center_of(broker) as center:
        center.subscriber(group="SG", topic="TP", timeout_seconds=30)(handle_late)
        call = await start(center, broker)
        call.deliver(b"late")
        await eventually(lambda: gates.called)
        put_forward(31)
        assert await call.settled(1) == [(0, RETRY, 1)]
        gates.open(b"late")
        await eventually(lambda: made and inspect.getcoroutinestate(made[0]) == inspect.CORO_CLOSED)


_PROGRAM = """
import sys, threading
from msgbroker.client import SyncMessageCenter

begun = threading.Event()
with SyncMessageCenter(sys.argv[1], drain_timeout_seconds=0.1) as center:

    @center.subscriber(group="SG", topic="TP")
    def handle(body: bytes) -> None:
        begun.set()
        threading.Event().wait()  # a socket without a timeout

    center.start()
    begun.wait()
"""


async def test_a_program_ends_after_closing_though_a_thread_hangs(broker: FakeBroker) -> None:
    root = Path(__file__).parents[4]
    service = await asyncio.create_subprocess_exec(sys.executable, "-c", _PROGRAM, broker.address, cwd=root)
    try:
        call = await asyncio.wait_for(broker.subscribe_calls.get(), 30)
        call.deliver(b"1")
        assert await asyncio.wait_for(service.wait(), 30) == 0
    finally:
        if service.returncode is None:
            service.kill()
            await service.wait()
    assert await call.settled(1) == [(0, RELEASE, 1)]
