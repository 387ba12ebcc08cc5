"""A part of the client that ends for a reason nobody foresaw: it is said loudly, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

import pytest

from msgbroker.client import (
    GroupNotFoundError,
    Message,
    MessageCenterError,
    SyncMessageCenter,
)
from msgbroker.client.handle.group_handlers import GroupHandlers
from msgbroker.client.handle.handed import HandedMessage
from msgbroker.client.publish.buffer import PublishBuffer
from msgbroker.client.publish.outbox import Outbox
from msgbroker.client.subscribe import stream as subscriber_stream_module
from msgbroker.client.testing import InMemoryCenter, SyncInMemoryCenter
from msgbroker.client.testing.delivery import MemoryStream
from tests.support.eventually import eventually, eventually_blocking
from tests.support.fake_broker import FakeBroker
from tests.support.fast_center import center_of

pytestmark = pytest.mark.slow

RETRY = 2


def break_off(*_: object, **__: object) -> NoReturn:
    raise RuntimeError("a mistake of ours")


def criticals(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert all(record.exc_info for record in caplog.records if record.levelno == logging.CRITICAL)
    return [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]


async def handle(message: Message) -> None:
    """Do nothing."""


# --- publishing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "broken",
    [(Outbox, "next_frame"), (PublishBuffer, "resolve"), (PublishBuffer, "expire"), (Outbox, "stored")],
    ids=["sending", "answering", "looking at the clock", "counting"],
)
async def test_who_waits_for_an_answer_hears_that_the_publisher_has_ended(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: tuple[type, str]
) -> None:
    async with center_of(broker, unanswered_messages_max=2) as center:
        if broken[1] == "expire":
            broker.answers_held.clear()
        monkeypatch.setattr(*broken, break_off)
        waiting = [center.publish_soon("TP", "EC"), center.publish_soon("TP", "EC")]
        waiting_for_room = asyncio.ensure_future(center.publish("TP", "EC"))
        async with asyncio.timeout(5):
            for publish in [*waiting, waiting_for_room]:
                with pytest.raises(
                    MessageCenterError, match="the publisher has ended: RuntimeError: a mistake of ours"
                ):
                    await publish
            await center.flush()
            # And whatever is published from now on.
            with pytest.raises(MessageCenterError, match="a mistake of ours"):
                await center.publish("TP", "EC")
            with pytest.raises(MessageCenterError, match="a mistake of ours"):
                center.publish_soon("TP", "EC")
            with pytest.raises(MessageCenterError, match="a mistake of ours"):
                center.publish_one_way("TP", "EC")
            (answer,) = await center.publish_many([_message()])
            assert isinstance(answer, MessageCenterError)
            with pytest.raises(RuntimeError, match="a mistake of ours"):
                await center.run()
        broker.answers_held.set()
        monkeypatch.undo()

    assert criticals(caplog) == ["client.failed: the publisher has ended: RuntimeError: a mistake of ours"]


async def test_run_ends_with_what_ended_the_publisher_in_the_middle_of_it(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with center_of(broker) as center:
        center.subscriber(group="SG", topic="TP")(handle)
        running = asyncio.ensure_future(center.run())
        await broker.subscribe_calls.get()
        monkeypatch.setattr(Outbox, "next_frame", break_off)
        with pytest.raises(MessageCenterError):
            await center.publish("TP", "EC")
        with pytest.raises(RuntimeError, match="a mistake of ours"):
            await asyncio.wait_for(running, 5)


async def test_a_failed_frame_whose_answer_makes_no_sense_fails_who_waits_for_it(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("msgbroker.client.publish.answers.from_refusal", break_off)
    broker.on_frame = lambda frame: "STORE_UNAVAILABLE"
    async with center_of(broker) as center, asyncio.timeout(5):
        with pytest.raises(MessageCenterError, match="a mistake of ours"):
            await center.publish("TP", "EC")


# --- subscribing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_awaited", [True, False])
async def test_a_stream_that_ends_for_an_unknown_reason_ends_run_with_it(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, is_awaited: bool
) -> None:
    async with center_of(broker) as center:
        center.subscriber(group="SG", topic="TP")(handle)
        await center.start()
        running = asyncio.ensure_future(center.run()) if is_awaited else None
        call = await broker.subscribe_calls.get()
        monkeypatch.setattr(GroupHandlers, "take_in", break_off)
        call.deliver(b"a")
        await eventually(lambda: criticals(caplog))
        with pytest.raises(RuntimeError, match="a mistake of ours"):
            await asyncio.wait_for(running or center.run(), 5)

    assert criticals(caplog) == ["client.failed: the stream of group SG has ended: RuntimeError: a mistake of ours"]


async def test_a_task_beside_the_stream_that_ends_for_an_unknown_reason_ends_run_with_it(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriber_stream_module, "list_brokers", break_off)
    async with center_of(broker) as center:
        center.subscriber(group="SG", topic="TP")(handle)
        with pytest.raises(RuntimeError, match="a mistake of ours"):
            await asyncio.wait_for(center.run(), 5)


async def test_a_refusal_is_not_a_mistake_of_ours(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    import grpc

    broker.refuse_hello = (grpc.StatusCode.NOT_FOUND, (("msgcenter-reason", "GROUP_NOT_FOUND"),))
    async with center_of(broker) as center:
        center.subscriber(group="SG", topic="TP")(handle)
        with pytest.raises(GroupNotFoundError):
            await center.run()

    assert criticals(caplog) == []


async def test_a_worker_that_ends_leaves_its_message_to_the_next_attempt(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HandedMessage, "ack", break_off)
    async with center_of(broker) as center:
        center.subscriber(group="SG", topic="TP")(handle)
        await center.start()
        call = await broker.subscribe_calls.get()
        call.deliver(b"a", b"b", b"c")
        assert await call.settled(3) == [(0, RETRY, 1), (1, RETRY, 1), (2, RETRY, 1)]

    assert {settlement.error for settlement in call.settlements} == {"RuntimeError: a mistake of ours"}


async def test_a_handler_that_ends_the_program_costs_its_message_an_attempt(broker: FakeBroker) -> None:
    async with center_of(broker) as center:

        @center.subscriber(group="SG", topic="TP")
        async def leave(message: Message) -> None:
            sys.exit("enough")

        async def deliver() -> None:
            call = await broker.subscribe_calls.get()
            call.deliver(b"a")
            calls.append(call)

        calls: list[Any] = []
        delivering = asyncio.ensure_future(deliver())
        with pytest.raises(SystemExit, match="enough"):
            await center.run()
        await delivering
    assert await calls[0].settled(1) == [(0, RETRY, 1)]
    assert calls[0].settlements[0].error == "SystemExit: enough"
    # It left in good order: closing was not cut short.
    assert calls[0].paused


_PROGRAM = """
import asyncio, sys
from msgbroker.client import MessageCenter

async def main() -> None:
    async with MessageCenter(sys.argv[1], drain_timeout_seconds=2) as center:

        @center.subscriber(group="SG", topic="TP")
        {handler}
            raise {end}

        {wait}

asyncio.run(main())
"""
_WAITS = ["await center.run()", "await center.start(); await asyncio.Event().wait()"]
_HANDLERS = ["async def handle(body: bytes) -> None:", "def handle(body: bytes) -> None:"]


@pytest.mark.parametrize("handler", _HANDLERS, ids=["async", "thread"])
@pytest.mark.parametrize("wait", _WAITS, ids=["run", "start"])
@pytest.mark.parametrize("end", ["SystemExit(5)", "KeyboardInterrupt"])
async def test_a_handler_ends_its_program_by_what_ends_programs(
    broker: FakeBroker, tmp_path: Path, handler: str, wait: str, end: str
) -> None:
    script = tmp_path / "service.py"
    script.write_text(_PROGRAM.format(handler=handler, wait=wait, end=end))
    service = await asyncio.create_subprocess_exec(
        sys.executable, str(script), broker.address, stderr=asyncio.subprocess.PIPE
    )
    call = await asyncio.wait_for(broker.subscribe_calls.get(), 20)
    call.deliver(b"a")
    _, stderr = await asyncio.wait_for(service.communicate(), 20)

    assert service.returncode == (5 if "5" in end else -2), stderr
    if "run" in wait:
        # Else asyncio ends all tasks at once, ours too: the broker sees a stream that ended without a word.
        assert await call.settled(1) == [(0, RETRY, 1)]


def test_a_handler_cannot_end_the_thread_that_works_for_a_blocking_center(
    served: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with SyncMessageCenter(served.address, drain_timeout_seconds=1) as center:

        @center.subscriber(group="SG", topic="TP")
        def leave(message: Message) -> None:
            sys.exit("enough")

        center.start()
        call = asyncio.run_coroutine_threadsafe(served.subscribe_calls.get(), served.loop).result()
        served.loop.call_soon_threadsafe(call.deliver, b"1")
        eventually_blocking(lambda: criticals(caplog))
        assert center.publish("TP", "EC").queue_offset == 0

    assert criticals(caplog) == ["client.failed: the handler of group SG has ended: SystemExit: enough"]


def test_what_ends_programs_is_raised_by_the_run_of_a_blocking_center(served: Any) -> None:
    with SyncMessageCenter(served.address, drain_timeout_seconds=1) as center:

        @center.subscriber(group="SG", topic="TP")
        def leave(message: Message) -> None:
            sys.exit("enough")

        def deliver() -> None:
            call = asyncio.run_coroutine_threadsafe(served.subscribe_calls.get(), served.loop).result()
            served.loop.call_soon_threadsafe(call.deliver, b"1")

        thread = threading.Thread(target=deliver)
        thread.start()
        with pytest.raises(SystemExit, match="enough"):
            center.run()
        thread.join()
        assert center.publish("TP", "EC").queue_offset == 0


# --- in memory --------------------------------------------------------------------------------------------------------


class OutcomeError(BaseException):
    """As pytest's own: `pytest.fail` in a handler."""


@pytest.mark.parametrize("end", [OutcomeError("no"), SystemExit(3)])
async def test_what_ends_programs_is_raised_where_a_test_waits(end: BaseException) -> None:
    async with InMemoryCenter() as center:

        @center.subscriber(group="SG", topic="TP")
        async def fail(message: Message) -> None:
            raise end

        await center.start()
        await center.publish("TP", "EC")
        with pytest.raises(type(end)):
            await center.settle_all()
        with pytest.raises(type(end)):
            await center.advance(1)


def test_what_ends_programs_is_raised_where_a_blocking_test_waits() -> None:
    with SyncInMemoryCenter() as center:

        @center.subscriber(group="SG", topic="TP")
        def fail(message: Message) -> None:
            sys.exit("enough")

        center.start()
        center.publish("TP", "EC")
        with pytest.raises(SystemExit, match="enough"):
            center.settle_all()


@pytest.mark.parametrize("is_awaited", [True, False])
async def test_delivery_in_memory_that_breaks_is_heard(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, is_awaited: bool
) -> None:
    async with InMemoryCenter() as center:
        center.subscriber(group="SG", topic="TP")(handle)
        await center.start()
        monkeypatch.setattr(MemoryStream, "pump", break_off)
        running = asyncio.ensure_future(center.run()) if is_awaited else None
        await center.publish("TP", "EC")
        with pytest.raises(RuntimeError, match="a mistake of ours"):
            await (asyncio.wait_for(running, 5) if running else center.settle_all())

    assert criticals(caplog) == ["client.failed: delivery in memory has ended: RuntimeError: a mistake of ours"]


def _message() -> Any:
    from msgbroker.client import OutgoingMessage

    return OutgoingMessage("TP", "EC")
