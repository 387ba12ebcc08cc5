"""What asyncio and its libraries expect of a handler that runs in a context of its own, inside of a worker's task."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncGenerator
from contextvars import ContextVar, copy_context
from typing import Any

import pytest

from msgbroker.client import Message, MessageCenter
from msgbroker.client.handle.contexts import begin, go_on
from tests.support.fake_broker import FakeBroker

ACK, RETRY = 1, 2

trace: ContextVar[str] = ContextVar("trace", default="")


async def test_a_handler_runs_in_the_task_of_its_worker_whatever_it_waits_for(broker: FakeBroker) -> None:
    tasks: set[asyncio.Task[Any] | None] = set()
    async with MessageCenter(broker.address) as center:

        @center.subscriber(group="SG", topic="TP", concurrency=1)
        async def handle(message: Message) -> None:
            tasks.add(asyncio.current_task())
            await asyncio.sleep(0)
            tasks.add(asyncio.current_task())

        await center.start()
        call = await broker.subscribe_calls.get()
        call.deliver(b"1", b"2")
        await call.settled(2)

    assert [task.get_name() for task in tasks if task is not None] == ["handler SG"]


async def test_bounds_of_time_of_a_handler_hold_in_it(broker: FakeBroker) -> None:
    passed: list[str] = []
    async with MessageCenter(broker.address) as center:

        @center.subscriber(group="SG", topic="TP", concurrency=1)
        async def handle(message: Message) -> None:
            trace.set("set")
            try:
                async with asyncio.timeout(0.001):
                    await asyncio.Event().wait()
            except TimeoutError:
                passed.append(trace.get())
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0))

        await center.start()
        call = await broker.subscribe_calls.get()
        call.deliver(b"1", b"2")
        assert await call.settled(2) == [(0, ACK, 1), (1, ACK, 1)]

    assert passed == ["set"] * 2


async def test_a_handler_past_its_time_is_cancelled_in_its_context(broker: FakeBroker) -> None:
    found: list[str] = []
    async with MessageCenter(broker.address) as center:

        @center.subscriber(group="SG", topic="TP", timeout_seconds=0.01)
        async def handle(message: Message) -> None:
            token = trace.set(message.text())
            try:
                await asyncio.Event().wait()
            finally:
                found.append(trace.get())
                trace.reset(token)

        await center.start()
        call = await broker.subscribe_calls.get()
        call.deliver(b"1")
        assert await call.settled(1) == [(0, RETRY, 1)]

    assert found == ["1"]


async def test_asynchronous_generators_and_what_they_set_work_in_a_handler(broker: FakeBroker) -> None:
    found: list[str] = []

    async def rows() -> AsyncGenerator[int]:
        token = trace.set("rows")
        try:
            for row in range(3):
                await asyncio.sleep(0)
                yield row
        finally:
            trace.reset(token)

    async with MessageCenter(broker.address) as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            async with contextlib.aclosing(rows()) as each:
                found.extend([trace.get() async for _ in each])
            found.append(trace.get())

        await center.start()
        call = await broker.subscribe_calls.get()
        call.deliver(b"1")
        assert await call.settled(1) == [(0, ACK, 1)]

    assert found == ["rows"] * 3 + [""]


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_failure_is_logged_in_the_context_of_its_call(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    logged: list[str] = []

    def add_trace(record: logging.LogRecord) -> bool:
        if record.getMessage().startswith("handler.failed"):
            logged.append(trace.get())
        return True

    def fail(message: Message) -> None:
        trace.set(message.text())
        raise ValueError("no luck")

    async def fail_late(message: Message) -> None:
        await asyncio.sleep(0)
        fail(message)

    caplog.handler.addFilter(add_trace)
    try:
        async with MessageCenter(broker.address) as center:
            center.subscriber(group="SG", topic="TP", concurrency=1)(fail_late if is_async else fail)
            await center.start()
            call = await broker.subscribe_calls.get()
            call.deliver(b"1", b"2")
            await call.settled(2)
    finally:
        caplog.handler.removeFilter(add_trace)

    assert logged == ["1", "2"]


async def test_a_call_that_nobody_goes_on_with_is_closed_in_its_context() -> None:
    found: list[str] = []

    async def handle(_: str) -> None:
        token = trace.set("set")
        try:
            await asyncio.Event().wait()
        finally:
            found.append(trace.get())
            trace.reset(token)

    context = copy_context()
    calling = go_on(context, context.run(begin, handle, ""))
    calling.send(None)
    calling.close()
    gc.collect()

    assert found == ["set"]


async def test_what_is_thrown_into_a_call_is_the_calls_to_take() -> None:
    async def handle(_: str) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "taken"

    async def call() -> Any:
        context = copy_context()
        return await go_on(context, context.run(begin, handle, ""))

    task = asyncio.create_task(call())
    await asyncio.sleep(0)
    task.cancel()

    assert await task == "taken"
