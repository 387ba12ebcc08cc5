"""Conformance: what ends the client, or the program, is heard by who waits."""

from __future__ import annotations

import asyncio
import logging

import pytest

from msgbroker.client import Message
from msgbroker.client.handle.handed import HandedMessage
from tests.contract.harness import Harness, Recorder, prepare


@pytest.mark.parametrize(
    "end", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=lambda end: type(end).__name__
)
async def test_what_ends_programs_is_raised_by_run_when_a_handler_raises_it(
    harness: Harness, end: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    await prepare(harness, "SG")
    async with harness.center() as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            raise end

        await center.publish("TP", "EC", b"1")
        with pytest.raises(type(end)) as raised:
            await center.run()

    assert raised.value is end
    assert [record.levelname for record in caplog.records if "handler.failed" in record.message] == ["WARNING"]


async def test_what_ends_a_worker_ends_run_with_the_reason_and_is_logged(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await prepare(harness, "SG")
    recorder = Recorder()
    breaks = True
    ack = HandedMessage.ack

    def ack_or_break(message: HandedMessage) -> None:
        if breaks:
            raise RuntimeError("a mistake of ours")
        ack(message)

    monkeypatch.setattr(HandedMessage, "ack", ack_or_break)
    async with harness.center() as center:

        @center.subscriber(group="SG", topic="TP", concurrency=1)
        async def handle(message: Message) -> None:
            recorder.add(message)

        await center.publish("TP", "EC", b"1")
        with pytest.raises(RuntimeError, match="a mistake of ours"):
            await center.run()
        breaks = False

    critical = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert len(critical) == 1
    assert "RuntimeError: a mistake of ours" in critical[0].message
    assert critical[0].exc_info is not None


async def test_what_ends_a_worker_is_logged_where_nobody_waits_and_the_rest_is_handled(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await prepare(harness, "SG", retry_schedule_seconds=(0.01,))
    recorder = Recorder()
    ack = HandedMessage.ack

    def ack_or_break(message: HandedMessage) -> None:
        if message.body == b"bad" and message.attempt == 1:
            raise RuntimeError("a mistake of ours")
        ack(message)

    monkeypatch.setattr(HandedMessage, "ack", ack_or_break)
    async with harness.center() as center:

        @center.subscriber(group="SG", topic="TP", concurrency=1)
        async def handle(message: Message) -> None:
            recorder.add(message)

        await center.start()
        futures = [center.publish_soon("TP", "EC", body) for body in (b"0", b"bad", b"2", b"3")]
        for future in futures:
            await future
        await recorder.wait(4)

    assert recorder.bodies[:4] == [b"0", b"bad", b"2", b"3"]
    assert [record.levelname for record in caplog.records if "client.failed" in record.message] == ["CRITICAL"]


async def test_run_that_was_not_begun_yet_raises_what_ended_the_client_before(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await prepare(harness, "SG")
    recorder = Recorder()

    def break_off(message: HandedMessage) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(HandedMessage, "ack", break_off)
    async with harness.center() as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            recorder.add(message)

        await center.start()
        await center.publish("TP", "EC", b"1")
        await recorder.wait(1)
        async with asyncio.timeout(10):
            with pytest.raises(RuntimeError, match="a mistake of ours"):
                await center.run()
