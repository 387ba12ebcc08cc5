"""What a handler's call returns is run to its end before its message is settled."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from msgbroker.client import InvalidSettingError, Message, MessageCenter, Reject
from tests.support.fake_broker import FakeBroker

ACK, RETRY, REJECT = 1, 2, 4

handled: list[bytes] = []


async def handle(message: Message) -> object:
    await asyncio.sleep(0)
    handled.append(message.body)
    match message.body:
        case b"raise":
            raise ValueError("no luck")
        case b"returned":
            return Reject("returned")
        case b"too long":
            await asyncio.Event().wait()
    return None


def counted(function: Callable[[Message], Awaitable[object]]) -> Callable[[Message], Awaitable[object]]:
    """Decorate without knowing that what is decorated is async, as many do."""

    @functools.wraps(function)
    def wrapper(message: Message) -> Awaitable[object]:
        return function(message)

    return wrapper


class Handle:
    async def handle(self, message: Message) -> object:
        return await handle(message)

    def __call__(self, message: Message) -> Awaitable[object]:
        return self.handle(message)


async def unawaited(message: Message) -> object:
    return handle(message)


async def in_a_task(message: Message) -> object:
    return asyncio.ensure_future(handle(message))


async def settled_by(
    broker: FakeBroker, function: Callable[..., Any], *bodies: bytes, timeout_seconds: float | None = None
) -> list[tuple[int, int, int]]:
    handled.clear()
    async with MessageCenter(broker.address, drain_timeout_seconds=0.5) as center:
        center.subscriber(group="SG", topic="TP", timeout_seconds=timeout_seconds)(function)
        await center.start()
        call = await broker.subscribe_calls.get()
        call.deliver(*bodies)
        return await call.settled(len(bodies))


def call_handle(message: Message) -> object:
    return handle(message)


each_kind = pytest.mark.parametrize(
    "function",
    [handle, counted(handle), call_handle, functools.partial(call_handle), Handle(), unawaited, in_a_task],
    ids=["async", "decorated", "called", "partial", "object", "not awaited", "task"],
)


@each_kind
async def test_what_a_call_returns_is_awaited_and_its_outcome_counts(
    broker: FakeBroker, function: Callable[..., Any]
) -> None:
    settled = await settled_by(broker, function, b"fine", b"raise", b"returned")

    assert sorted(handled) == [b"fine", b"raise", b"returned"]
    assert settled == [(0, ACK, 1), (1, RETRY, 1), (2, REJECT, 1)]


@each_kind
async def test_what_a_call_returns_has_the_time_of_its_handler(
    broker: FakeBroker, function: Callable[..., Any]
) -> None:
    assert await settled_by(broker, function, b"too long", timeout_seconds=0.05) == [(0, RETRY, 1)]


async def test_a_future_of_another_thread_is_waited_for(broker: FakeBroker) -> None:
    loop = asyncio.get_running_loop()

    def handle_elsewhere(message: Message) -> Future[object]:
        return asyncio.run_coroutine_threadsafe(handle(message), loop)

    settled = await settled_by(broker, handle_elsewhere, b"fine", b"raise", b"returned")

    assert sorted(handled) == [b"fine", b"raise", b"returned"]
    assert settled == [(0, ACK, 1), (1, RETRY, 1), (2, REJECT, 1)]


def parts(message: Message) -> Iterator[None]:
    handled.append(message.body)
    yield


async def parts_in_time(message: Message) -> AsyncIterator[None]:
    handled.append(message.body)
    yield


class Parts:
    def __call__(self, message: Message) -> Iterator[None]:
        yield from parts(message)


async def nested(message: Message) -> object:
    async def inner() -> object:
        return handle(message)

    return inner()


@pytest.mark.parametrize(
    "function",
    [lambda message: parts(message), lambda message: parts_in_time(message), nested],  # noqa: PLW0108
    ids=["generator", "asynchronous generator", "a coroutine's coroutine"],
)
async def test_what_stays_unrun_has_failed(broker: FakeBroker, function: Callable[..., Any]) -> None:
    assert await settled_by(broker, function, b"1") == [(0, RETRY, 1)]
    assert handled == []


@pytest.mark.parametrize("function", [parts, parts_in_time, Parts(), functools.partial(parts)])
def test_a_generator_function_is_refused_with_what_to_write_instead(function: Callable[..., Any]) -> None:
    with pytest.raises(InvalidSettingError, match=r"arts.* is a generator function: .* write it without yield"):
        MessageCenter().subscriber(group="SG", topic="TP")(function)
    with pytest.raises(InvalidSettingError, match="write it without yield"):
        MessageCenter().subscriber(group="SG", topic="TP", body=dict)(function)
