"""Starting a center and closing it: at every moment, twice, from within, and given up halfway."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from msgbroker.client import CenterClosedError, GroupNotFoundError, Message, MessageCenter
from msgbroker.client.subscribe.subscribers import Subscribers
from msgbroker.client.testing import InMemoryCenter
from msgbroker.v1 import directory_pb2
from tests.support.eventually import eventually
from tests.support.fake_broker import FakeBroker, SubscribeCall

ACK, RELEASE = 1, 3
_OF_THE_CLIENT = ("handler", "subscriber", "publisher", "close")


class Gated:
    """A handler that waits at its gate."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.ended: list[str] = []

    async def handle(self, message: Message) -> None:
        self.begun.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.ended.append("cut off")
            raise
        self.ended.append("done")


def center_of(broker: FakeBroker, **options: Any) -> MessageCenter:
    options.setdefault("drain_timeout_seconds", 30)
    return MessageCenter(broker.address, backoff_initial_seconds=0.001, connect_timeout_seconds=0.5, **options)


def tasks_of_the_client() -> list[str]:
    names = [task.get_name() for task in asyncio.all_tasks()]
    return [name for name in names if name.startswith(_OF_THE_CLIENT)]


async def hold_one(center: MessageCenter, broker: FakeBroker, handler: Gated) -> SubscribeCall:
    """Start, and return the stream whose message is at its handler."""
    center.subscriber(group="SG", topic="TP")(handler.handle)
    await center.start()
    call = await broker.subscribe_calls.get()
    call.deliver(b"1")
    await handler.begun.wait()
    return call


# --- more than once ---------------------------------------------------------------------------------------------------


async def test_who_gives_up_waiting_leaves_the_center_to_close(broker: FakeBroker) -> None:
    handler = Gated()
    center = center_of(broker)
    call = await hold_one(center, broker, handler)
    running = asyncio.ensure_future(center.run())
    await center.publish("TP", "EC", b"opens the publisher")
    impatient = asyncio.ensure_future(center.close())
    await eventually(lambda: call.paused)
    impatient.cancel()
    patient = asyncio.ensure_future(center.close())
    handler.gate.set()
    await patient
    await running

    assert handler.ended == ["done"]
    assert await call.settled(1) == [(0, ACK, 1)]
    assert tasks_of_the_client() == []


async def test_every_close_returns_when_the_center_is_closed_and_not_before(broker: FakeBroker) -> None:
    handler = Gated()
    async with center_of(broker) as center:
        call = await hold_one(center, broker, handler)
        closing = [asyncio.ensure_future(center.close()) for _ in range(2)]
        await eventually(lambda: call.paused)
        assert not any(task.done() for task in closing)
        handler.gate.set()
    # Left as the third.
    assert handler.ended == ["done"]
    await asyncio.gather(*closing, center.close())


async def test_run_returns_though_closing_fails(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(subscribers: Subscribers, until: float) -> None:
        await close(subscribers, until)
        raise RuntimeError("a mistake of ours")

    close = Subscribers.close
    center = center_of(broker)
    center.subscriber(group="SG", topic="TP")(Gated().handle)
    running = asyncio.ensure_future(center.run())
    await broker.subscribe_calls.get()
    monkeypatch.setattr(Subscribers, "close", fail)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        await center.close()
    await running


# --- from within ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_last", [True, False], ids=["as its last act", "and waits for it"])
async def test_a_handler_may_close_its_center(broker: FakeBroker, *, is_last: bool) -> None:
    center = center_of(broker)

    @center.subscriber(group="SG", topic="TP")
    async def handle(message: Message) -> None:
        await center.close()
        if not is_last:
            await asyncio.sleep(0)

    running = asyncio.ensure_future(center.run())
    call = await broker.subscribe_calls.get()
    call.deliver(b"the last one")
    # Long before its time to drain is over.
    await asyncio.wait_for(running, 20)

    assert await call.settled(1) == [(0, ACK, 1)]
    assert tasks_of_the_client() == []


async def test_a_handler_that_waits_for_closing_in_a_task_of_its_own_is_cut_off_in_time(broker: FakeBroker) -> None:
    center = center_of(broker, drain_timeout_seconds=0.05)

    @center.subscriber(group="SG", topic="TP")
    async def handle(message: Message) -> None:
        await asyncio.create_task(center.close())

    running = asyncio.ensure_future(center.run())
    call = await broker.subscribe_calls.get()
    call.deliver(b"the last one")
    await asyncio.wait_for(running, 20)

    assert await call.settled(1) == [(0, RELEASE, 1)]


async def test_a_handler_may_close_its_center_in_memory() -> None:
    center = InMemoryCenter(drain_timeout_seconds=30)

    @center.subscriber(group="SG", topic="TP")
    async def handle(message: Message) -> None:
        await center.close()

    running = asyncio.ensure_future(center.run())
    await eventually(lambda: center._memory.streams)
    await center.publish("TP", "EC")
    await asyncio.wait_for(running, 20)
    assert center.dead_letters == []


async def test_a_handler_that_runs_while_its_center_closes_may_publish_its_first_message(broker: FakeBroker) -> None:
    begun = asyncio.Event()
    gate = asyncio.Event()
    center = center_of(broker)

    @center.subscriber(group="SG", topic="TP")
    async def handle(message: Message) -> None:
        begun.set()
        await gate.wait()
        await center.publish("TP_NEXT", "EC", message.body)

    await center.start()
    call = await broker.subscribe_calls.get()
    call.deliver(b"1")
    await begun.wait()
    closing = asyncio.ensure_future(center.close())
    await eventually(lambda: call.paused)
    gate.set()
    await closing

    assert await call.settled(1) == [(0, ACK, 1)]
    assert [message.body for message in broker.store.messages] == [b"1"]
    with pytest.raises(CenterClosedError):
        await center.publish("TP_NEXT", "EC")


# --- while it starts --------------------------------------------------------------------------------------------------


class SlowToRegister(FakeBroker):
    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def Register(self, request: Any, context: Any) -> directory_pb2.RegisterResponse:
        self.asked.set()
        await self.may_answer.wait()
        return await super().Register(request, context)


async def test_a_close_right_after_run_began_ends_it(broker: FakeBroker) -> None:
    center = center_of(broker)
    center.subscriber(group="SG", topic="TP")(Gated().handle)
    running = asyncio.ensure_future(center.run())
    await asyncio.sleep(0)
    await center.close()
    await running

    assert tasks_of_the_client() == []
    assert broker.subscribe_calls.empty()


async def test_a_center_closed_while_it_registers_subscribes_to_nothing_afterwards() -> None:
    async with SlowToRegister() as broker:
        center = center_of(broker)
        center.subscriber(group="SG", topic="TP", register=True)(Gated().handle)
        running = asyncio.ensure_future(center.run())
        starting = asyncio.ensure_future(center.start())
        await broker.asked.wait()
        await center.close()
        await running
        with pytest.raises(CenterClosedError):
            await starting
        broker.may_answer.set()

        assert tasks_of_the_client() == []
        assert broker.subscribe_calls.empty()


async def test_start_beside_run_opens_each_group_once() -> None:
    async with SlowToRegister() as broker:
        center = center_of(broker)
        center.subscriber(group="SG", topic="TP", register=True)(Gated().handle)
        running = asyncio.ensure_future(center.run())
        starting = asyncio.ensure_future(center.start())
        await broker.asked.wait()
        broker.may_answer.set()
        await starting
        await center.start()

        assert tasks_of_the_client().count("subscriber SG") == 1
        assert len(broker.registered) == 1
        await center.close()
        await running


async def test_a_start_that_failed_may_be_tried_again(broker: FakeBroker) -> None:
    handled = asyncio.Event()
    broker.refuse_hello = (grpc.StatusCode.NOT_FOUND, (("msgcenter-reason", "GROUP_NOT_FOUND"),))
    async with center_of(broker) as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            handled.set()

        for _ in range(2):
            with pytest.raises(GroupNotFoundError):
                await center.start()
        broker.refuse_hello = None
        await center.start()
        call = await broker.subscribe_calls.get()
        call.deliver(b"1")
        await handled.wait()

    assert tasks_of_the_client() == []


async def test_a_start_that_registers_waits_until_there_is_a_broker(
    caplog: pytest.LogCaptureFixture, free_port: int
) -> None:
    broker = FakeBroker()
    broker.address = f"127.0.0.1:{free_port}"
    async with center_of(broker) as center:
        center.subscriber(group="SG", topic="TP", register=True)(Gated().handle)
        starting = asyncio.ensure_future(center.start())
        await eventually(
            lambda: f"registration.broker_not_reached: group=SG address={broker.address} reason=" in caplog.text
        )
        await broker.start(broker.address)
        await starting

    assert f"registration.broker_found: group=SG address={broker.address} seconds=" in caplog.text
    assert len(broker.registered) == 1
    await broker.stop()


async def test_a_center_that_waits_for_a_broker_to_register_at_closes_at_once(free_port: int) -> None:
    center = MessageCenter(f"127.0.0.1:{free_port}", connect_timeout_seconds=3_600, drain_timeout_seconds=3_600)
    center.subscriber(group="SG", topic="TP", register=True)(Gated().handle)
    running = asyncio.ensure_future(center.run())
    await asyncio.sleep(0)
    await center.close()
    await running

    assert tasks_of_the_client() == []


# --- without a broker -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "meanwhile"])
async def test_closing_waits_for_handlers_whose_broker_has_gone(broker: FakeBroker, when: str) -> None:
    handler = Gated()
    center = center_of(broker)
    call = await hold_one(center, broker, handler)
    stream: Any = center._core._subscribers._streams["SG"]
    if when == "before":
        await broker.stop()
        await eventually(lambda: not stream.attached.is_set())
    closing = asyncio.ensure_future(center.close())
    if when == "meanwhile":
        await eventually(lambda: call.paused)
        await broker.stop()
    await eventually(stream.task.done)
    handler.gate.set()
    await closing

    assert handler.ended == ["done"]


@pytest.mark.slow
async def test_closing_takes_its_time_once_for_all_it_waits_for(
    broker: FakeBroker, put_forward: Callable[[float], None]
) -> None:
    broker.answers_held.clear()
    handler = Gated()
    center = center_of(broker, drain_timeout_seconds=3_600, publish_timeout_seconds=None, answer_timeout_seconds=3_600)
    call = await hold_one(center, broker, handler)
    unanswered = center.publish_soon("TP", "EC")
    closing = asyncio.ensure_future(center.close())
    await eventually(lambda: call.paused)
    put_forward(3_600)
    assert await call.settled(1) == [(0, RELEASE, 1)]
    while not closing.done():
        # Some seconds more, for what was not done by then; and not another hour.
        put_forward(0.1)
        await asyncio.wait([closing], timeout=0.1)

    assert handler.ended == ["cut off"]
    with contextlib.suppress(CenterClosedError):
        await unanswered
    broker.answers_held.set()
