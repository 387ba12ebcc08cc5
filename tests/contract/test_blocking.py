"""Conformance: what blocking code is promised beside all else."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from msgbroker.client import InvalidSettingError, Message
from tests.contract.harness import BlockingHarness, Recorder, prepare


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


_NO_TIMEOUTS: list[Any] = [0, math.nan, "5"]


async def test_the_time_for_a_single_call_of_blocking_code_has_the_bounds_of_the_settings(
    blocking_harness: BlockingHarness,
) -> None:
    await blocking_harness.register_topic("TP", "EC")
    center = blocking_harness.blocking_center()
    try:
        for call in (center.publish, center.register):
            for seconds in _NO_TIMEOUTS:
                with pytest.raises(InvalidSettingError, match=r"^timeout_seconds "):
                    await asyncio.to_thread(call, "TP", "EC", timeout_seconds=seconds)
    finally:
        await asyncio.to_thread(center.close)
