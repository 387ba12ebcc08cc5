"""Cancellation inside of handlers and out of them: whose it is, and what it costs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from msgbroker.client import Message, MessageCenter
from msgbroker.client.handle import runner
from msgbroker.client.testing import InMemoryCenter
from tests.support.eventually import eventually
from tests.support.fake_broker import FakeBroker, SubscribeCall, ThreadedBroker

ACK, RETRY, RELEASE = 1, 2, 3


def cancel_own_task() -> None:
    """Do as libraries do that bound the time of a block by cancelling the task it runs in."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def workers() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("handler")]


async def start(center: MessageCenter, broker: FakeBroker) -> SubscribeCall:
    await center.start()
    return await broker.subscribe_calls.get()


# --- of a handler's own -----------------------------------------------------------------------------------------------


async def test_a_handler_that_cancels_its_own_task_has_failed_and_the_others_go_on(broker: FakeBroker) -> None:
    async with MessageCenter(broker.address, drain_timeout_seconds=0.5) as center:

        @center.subscriber(group="SG", topic="TP", concurrency=1)
        async def handle(message: Message) -> None:
            if message.body == b"odd":
                cancel_own_task()
                await asyncio.sleep(0)

        call = await start(center, broker)
        call.deliver(b"odd", b"1", b"odd", b"3")
        assert await call.settled(4) == [(0, RETRY, 1), (1, ACK, 1), (2, RETRY, 1), (3, ACK, 1)]


async def test_what_a_library_leaves_behind_that_cancels_its_task_costs_no_worker(broker: FakeBroker) -> None:
    """A TimeoutError out of a cancellation that it does not take back, as some do that are older than `uncancel`."""
    seen: list[int] = []
    async with MessageCenter(broker.address, drain_timeout_seconds=0.5) as center:

        @center.subscriber(group="SG", topic="TP", concurrency=1)
        async def handle(message: Message) -> None:
            task = asyncio.current_task()
            assert task is not None
            seen.append(task.cancelling())
            if message.body == b"timed out":
                cancel_own_task()
                try:
                    await asyncio.sleep(0)
                except asyncio.CancelledError:
                    raise TimeoutError from None
            if message.body == b"cancelled inside":
                raise asyncio.CancelledError

        call = await start(center, broker)
        call.deliver(b"timed out", b"cancelled inside", b"2", b"3")
        assert await call.settled(4) == [(0, RETRY, 1), (1, RETRY, 1), (2, ACK, 1), (3, ACK, 1)]

    assert seen == [0, 0, 0, 0]


async def test_a_cancellation_that_a_handler_does_not_wait_for_stops_nothing(broker: FakeBroker) -> None:
    async with MessageCenter(broker.address, drain_timeout_seconds=0.5) as center:

        @center.subscriber(group="SG", topic="TP", concurrency=1)
        async def handle(message: Message) -> None:
            if message.body != b"fine":
                cancel_own_task()
            if message.body == b"raise":
                raise ValueError("no luck")

        call = await start(center, broker)
        call.deliver(b"raise", b"fine")
        assert await call.settled(2) == [(0, RETRY, 1), (1, ACK, 1)]
        call.deliver(b"return", first=2)
        assert (2, ACK, 1) in await call.settled(3)
        call.deliver(b"fine", first=3)
        assert (3, ACK, 1) in await call.settled(4)


@pytest.mark.parametrize("is_bounded", [False, True])
@pytest.mark.parametrize("is_waited_for", [False, True])
async def test_a_cancellation_that_a_handler_returns_in_spite_of_is_not_the_next_messages(
    broker: FakeBroker, is_waited_for: bool, is_bounded: bool
) -> None:
    left: list[int] = []
    async with MessageCenter(broker.address, drain_timeout_seconds=0.5) as center:

        @center.subscriber(group="SG", topic="TP", concurrency=1, timeout_seconds=60 if is_bounded else None)
        async def handle(message: Message) -> None:
            task = asyncio.current_task()
            assert task is not None
            left.append(task.cancelling())
            if message.body == b"odd":
                cancel_own_task()
                if is_waited_for:
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.sleep(0)
                return
            await asyncio.sleep(0)

        call = await start(center, broker)
        call.deliver(b"odd", b"1", suspect=True)
        call.deliver(b"odd", b"3", first=2)
        assert await call.settled(4) == [(0, ACK, 1), (1, ACK, 1), (2, ACK, 1), (3, ACK, 1)]

    assert left == [0] * 4


# --- of somebody else -------------------------------------------------------------------------------------------------


async def test_a_worker_that_somebody_cancels_is_replaced(broker: FakeBroker) -> None:
    begun = asyncio.Event()
    async with MessageCenter(broker.address, drain_timeout_seconds=0.5) as center:

        @center.subscriber(group="SG", topic="TP", concurrency=1)
        async def handle(message: Message) -> None:
            if message.body == b"hangs":
                begun.set()
                await asyncio.Event().wait()

        call = await start(center, broker)
        call.deliver(b"hangs", b"1")
        await begun.wait()
        for worker in workers():
            worker.cancel()
        assert await call.settled(2) == [(0, RETRY, 1), (1, ACK, 1)]
        # And while there is nothing to do.
        for worker in workers():
            worker.cancel()
        call.deliver(b"2", first=2)
        assert (2, ACK, 1) in await call.settled(3)


def test_the_end_of_the_loop_ends_the_workers_and_begins_with_nothing(served: ThreadedBroker) -> None:
    handled: list[bytes] = []

    async def run() -> None:
        begun = asyncio.Event()
        center = MessageCenter(served.address)

        @center.subscriber(group="SG", topic="TP", concurrency=1)
        async def handle(message: Message) -> None:
            handled.append(message.body)
            begun.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

        await center.start()
        calling = asyncio.run_coroutine_threadsafe(served.subscribe_calls.get(), served.loop)
        call = await asyncio.wrap_future(calling)
        served.loop.call_soon_threadsafe(call.deliver, b"1")
        await begun.wait()

    # Nobody closes the center.
    ending = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    ending.start()
    ending.join(30)

    assert not ending.is_alive()
    assert handled == [b"1"]


# --- of closing -------------------------------------------------------------------------------------------------------


async def return_at_once() -> None:
    """Answer the cancellation by returning: what is acknowledged was not handled, for all one can know."""


async def raise_another() -> None:
    raise ConnectionError("the connection was in use")


async def go_on() -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()


@pytest.mark.parametrize("answer", [return_at_once, raise_another, go_on])
async def test_closing_is_bounded_and_gives_back_whatever_a_handler_answers_to_its_cancellation(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, answer: Callable[[], Any]
) -> None:
    monkeypatch.setattr(runner, "ENDING_SECONDS", 0.05)
    begun = asyncio.Event()
    center = MessageCenter(broker.address, drain_timeout_seconds=0.05)

    @center.subscriber(group="SG", topic="TP")
    async def handle(message: Message) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await answer()

    call = await start(center, broker)
    call.deliver(b"1")
    await begun.wait()
    try:
        await asyncio.wait_for(center.close(), 30)
    finally:
        await end(*workers())

    assert await call.settled(1) == [(0, RELEASE, 1)]


async def test_closing_in_memory_is_bounded_when_a_handler_swallows_its_cancellation() -> None:
    begun = asyncio.Event()
    center = InMemoryCenter(drain_timeout_seconds=0.05)

    @center.subscriber(group="SG", topic="TP")
    async def handle(message: Message) -> None:
        begun.set()
        await go_on()

    await center.start()
    await center.publish("TP", "EC")
    await begun.wait()
    await asyncio.wait_for(center.close(), 30)
    assert workers() == []


async def end(*tasks: asyncio.Task[Any]) -> None:
    """End what resists: it is cancelled until it has."""
    for task in tasks:

        def is_done(task: asyncio.Task[Any] = task) -> bool:
            return task.done() or (task.cancel() and False)

        await eventually(is_done)
