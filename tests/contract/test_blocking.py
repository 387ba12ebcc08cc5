"""Conformance: what blocking code is promised beside all else."""

from __future__ import annotations

import asyncio

from msgbroker.client import Message
from tests.contract.harness import BlockingHarness, Recorder
from tests.contract.test_delivery import prepare


async def test_blocking_code_publishes_and_its_handlers_run_in_threads(blocking_harness: BlockingHarness) -> None:
    await prepare(blocking_harness, "SG")
    recorder = Recorder()
    center = blocking_harness.blocking_center()

    @center.subscriber(group="SG", topic="TP", event_code="EC")
    def handle(message: Message) -> None:
        recorder.add(message)

    try:
        await asyncio.to_thread(center.start)
        receipt = await asyncio.to_thread(center.publish, "TP", "EC", b"1")
        await blocking_harness.received(recorder, 1)
    finally:
        await asyncio.to_thread(center.close)

    assert [message.message_id for message in recorder.messages] == [receipt.message_id]
