"""Conformance: a handler that takes longer than the ack timeout is the only one that is at its message."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from msgbroker.client import Message
from msgbroker.contract.errors import InvalidSettingError
from tests.contract.harness import BlockingHarness, Harness, Recorder, prepare

ACK_SECONDS = 1.0
# A message that times out once is a dead letter.
ONE_ATTEMPT = {"ack_timeout_seconds": ACK_SECONDS, "retry_schedule_seconds": ()}


async def test_a_handler_may_take_longer_than_the_ack_timeout(harness: Harness) -> None:
    await prepare(harness, "SG", **ONE_ATTEMPT)
    recorder, may_end = Recorder(), asyncio.Event()
    async with harness.center() as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            recorder.add(message)
            await may_end.wait()

        await center.start()
        await center.publish("TP", "EC", b"slow")
        await recorder.wait(1)
        await harness.pass_time(2.5 * ACK_SECONDS)
        may_end.set()
        await harness.received(recorder, 1)
        await center.publish("TP", "EC", b"next")
        await harness.received(recorder, 2)

    assert recorder.bodies == [b"slow", b"next"]
    assert await harness.dead_letters("SG", 0) == []


async def test_a_blocking_handler_may_take_longer_than_the_ack_timeout(blocking_harness: BlockingHarness) -> None:
    await prepare(blocking_harness, "SG", **ONE_ATTEMPT)
    recorder, may_end = Recorder(), threading.Event()
    center = blocking_harness.blocking_center()

    @center.subscriber(group="SG", topic="TP")
    def handle(message: Message) -> None:
        recorder.add(message)
        may_end.wait()

    try:
        await asyncio.to_thread(center.start)
        await asyncio.to_thread(center.publish, "TP", "EC", b"slow")
        await recorder.wait(1)
        await blocking_harness.pass_time(2.5 * ACK_SECONDS)
        may_end.set()
        await blocking_harness.received(recorder, 1)
        await asyncio.to_thread(center.publish, "TP", "EC", b"next")
        await blocking_harness.received(recorder, 2)
    finally:
        may_end.set()
        await asyncio.to_thread(center.close)

    assert recorder.bodies == [b"slow", b"next"]


@pytest.mark.parametrize("handle_seconds_max", [0, 1.5])
async def test_a_handler_beyond_the_limit_is_cancelled_and_its_message_comes_again(
    harness: Harness, handle_seconds_max: float, caplog: pytest.LogCaptureFixture
) -> None:
    await prepare(
        harness, "SG", ack_timeout_seconds=ACK_SECONDS, handle_seconds_max=handle_seconds_max,
        retry_schedule_seconds=(0.0,) * 3,
    )  # fmt: skip
    caplog.set_level(logging.WARNING, "msgbroker.client")
    recorder, cancelled = Recorder(), asyncio.Event()
    still_its_own: list[bool] = []
    async with harness.center() as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            recorder.add(message)
            if message.attempt == 1:
                try:
                    await asyncio.Event().wait()
                finally:
                    still_its_own.append(message.extend(10))
                    cancelled.set()

        await center.start()
        await center.publish("TP", "EC", b"1")
        await recorder.wait(1)
        await harness.pass_time(3 * ACK_SECONDS)
        async with asyncio.timeout(20):
            await cancelled.wait()
        await harness.received(recorder, 2)

    assert [message.attempt for message in recorder.messages] == [1, 2]
    assert still_its_own == [False]
    assert sum("handler.taken_back" in record.getMessage() for record in caplog.records) == 1


async def test_a_handler_can_ask_for_time_itself_within_bounds(harness: Harness) -> None:
    await prepare(harness, "SG", **ONE_ATTEMPT)
    recorder = Recorder()
    refused: list[Exception] = []
    async with harness.center() as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            for seconds in (0.0, -1.0, 86_401.0, float("nan")):
                try:
                    message.extend(seconds)
                except InvalidSettingError as error:
                    refused.append(error)
            assert message.extend(30)
            recorder.add(message)

        await center.start()
        await center.publish("TP", "EC", b"1")
        await harness.received(recorder, 1)

    assert len(refused) == 4
    assert await harness.dead_letters("SG", 0) == []
