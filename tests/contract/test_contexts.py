"""Conformance: each call of a handler has a context of its own, copied from where the center was started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any

import pytest

from msgbroker.client import Message, MessageCenter
from tests.contract.harness import BlockingHarness, Harness, Recorder, prepare

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")

Handle = Callable[[Message], Any]
MakeHandler = Callable[[Callable[[Message], None]], Handle]


def not_async(note: Callable[[Message], None]) -> Handle:
    """Make a handler that runs in a thread."""

    def handle(message: Message) -> None:
        note(message)

    return handle


def without_waiting(note: Callable[[Message], None]) -> Handle:
    async def handle(message: Message) -> None:
        note(message)

    return handle


def waiting_first(note: Callable[[Message], None]) -> Handle:
    async def handle(message: Message) -> None:
        await asyncio.sleep(0)
        note(message)
        await asyncio.sleep(0)

    return handle


def awaited_late(note: Callable[[Message], None]) -> Handle:
    """Make a handler that is not async, and returns what is to be awaited."""
    handle = waiting_first(note)

    def call(message: Message) -> Coroutine[Any, Any, None]:
        coroutine: Coroutine[Any, Any, None] = handle(message)
        return coroutine

    return call


KINDS = [not_async, without_waiting, waiting_first, awaited_late]


def noting(recorder: Recorder, seen: list[str]) -> Callable[[Message], None]:
    """Return what notes the tenant that it finds, and leaves another one."""

    def note(message: Message) -> None:
        seen.append(tenant.get())
        tenant.set(message.text())
        recorder.add(message)

    return note


@pytest.mark.parametrize("timeout_seconds", [None, 60.0])
@pytest.mark.parametrize("make", KINDS)
async def test_what_a_handler_sets_is_not_seen_by_the_next_call(
    harness: Harness, make: MakeHandler, timeout_seconds: float | None
) -> None:
    await prepare(harness, "SG")
    recorder = Recorder()
    seen: list[str] = []
    async with harness.center() as center:
        handle = make(noting(recorder, seen))
        center.subscriber(group="SG", topic="TP", concurrency=1, timeout_seconds=timeout_seconds)(handle)
        await center.start()
        for name in ("a", "b", "c"):
            await center.publish("TP", "EC", name)
        await harness.received(recorder, 3)

    assert seen == ["nobody"] * 3


@pytest.mark.parametrize("make", KINDS)
async def test_what_is_set_before_the_start_is_seen_by_each_call(harness: Harness, make: MakeHandler) -> None:
    await prepare(harness, "SG")
    recorder = Recorder()
    seen: list[str] = []
    async with harness.center() as center:
        center.subscriber(group="SG", topic="TP", concurrency=1)(make(noting(recorder, seen)))
        tenant.set("declared")
        await start_as(center, "started")
        tenant.set("published")
        await center.publish("TP", "EC", "1")
        await center.start()
        await center.publish("TP", "EC", "2")
        await harness.received(recorder, 2)

    assert seen == ["started"] * 2


async def start_as(center: MessageCenter, name: str) -> None:
    token = tenant.set(name)
    await center.start()
    tenant.reset(token)


async def test_what_a_handler_sets_stays_while_it_waits_beside_others(harness: Harness) -> None:
    await prepare(harness, "SG")
    recorder = Recorder()
    seen: dict[str, list[str]] = {}
    met = asyncio.Barrier(2)
    async with harness.center() as center:

        @center.subscriber(group="SG", topic="TP", timeout_seconds=60)
        async def handle(message: Message) -> None:
            name = message.text()
            token = tenant.set(name)
            await met.wait()
            found = seen[name] = [tenant.get(), await asyncio.create_task(tenant_in_task())]
            tenant.reset(token)
            found.append(tenant.get())
            recorder.add(message)

        await center.start()
        for name in ("a", "b"):
            await center.publish("TP", "EC", name)
        await harness.received(recorder, 2)

    assert seen == {"a": ["a", "a", "nobody"], "b": ["b", "b", "nobody"]}


async def tenant_in_task() -> str:
    return tenant.get()


async def test_a_body_is_read_in_the_context_of_its_call(harness: Harness) -> None:
    await prepare(harness, "SG")
    recorder = Recorder()
    seen: list[str] = []

    class Order:
        @classmethod
        def model_validate_json(cls, body: bytes) -> Order:
            seen.append(tenant.get())
            tenant.set(body.decode())
            return cls()

    async with harness.center() as center:

        @center.subscriber(group="SG", topic="TP", concurrency=1, body=Order)
        async def handle(order: Order, message: Message) -> None:
            seen.append(tenant.get())
            recorder.add(message)

        await center.start()
        await center.publish("TP", "EC", "1")
        await center.publish("TP", "EC", "2")
        await harness.received(recorder, 2)

    assert seen == ["nobody", "1", "nobody", "2"]


@pytest.mark.parametrize("make", KINDS)
async def test_handlers_of_blocking_code_have_the_context_of_the_thread_that_started(
    blocking_harness: BlockingHarness, make: MakeHandler
) -> None:
    await prepare(blocking_harness, "SG")
    recorder = Recorder()
    seen: list[str] = []
    center = blocking_harness.blocking_center()
    center.subscriber(group="SG", topic="TP", concurrency=1)(make(noting(recorder, seen)))

    def start_and_publish() -> None:
        tenant.set("started")
        center.start()
        tenant.set("published")
        center.publish("TP", "EC", "1")
        center.publish("TP", "EC", "2")

    try:
        await asyncio.to_thread(start_and_publish)
        await blocking_harness.received(recorder, 2)
    finally:
        await asyncio.to_thread(center.close)

    assert seen == ["started"] * 2
