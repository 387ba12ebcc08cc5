"""Conformance: a group that is refused for good while it is served takes its own handlers down, and nobody else's."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from msgbroker.client import GroupNotFoundError, Message, MessageCenter, SyncMessageCenter
from tests.contract.harness import BlockingHarness, Harness, Recorder, prepare, record
from tests.support.eventually import eventually


def errors_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the client has logged as an error, or worse."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "msgbroker.client" and record.levelno >= logging.ERROR
    ]


async def ended(center: MessageCenter | SyncMessageCenter, *groups: str) -> None:
    """Wait until these groups, and no others, have ended."""
    await eventually(lambda: list(center.ended_groups) == list(groups))


async def test_a_group_that_is_deleted_ends_alone_and_run_says_so_in_the_end(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    await prepare(harness, "SG_A", "SG_B")
    async with harness.center() as center:
        gone, left = record(center, "SG_A"), record(center, "SG_B")
        running = asyncio.ensure_future(center.run())
        await center.publish("TP", "EC", b"1")
        await eventually(lambda: gone.bodies and left.bodies)
        assert center.ended_groups == {}

        await harness.delete_group("SG_A")
        await ended(center, "SG_A")
        (said,) = errors_in(caplog)
        assert said.startswith("subscriber.ended: group=SG_A reason=GROUP_NOT_FOUND: ")
        await center.publish("TP", "EC", b"2")
        await harness.received(left, 2)
        assert not running.done()
        await center.close()
        told = await running

    assert (gone.bodies, left.bodies) == ([b"1"], [b"1", b"2"])
    assert {group: type(error) for group, error in told.items()} == {"SG_A": GroupNotFoundError}
    assert center.ended_groups == told


async def test_where_no_group_ends_run_names_none(harness: Harness) -> None:
    await prepare(harness, "SG")
    async with harness.center() as center:
        record(center, "SG")
        await center.start()
        running = asyncio.ensure_future(center.run())
        await asyncio.sleep(0)
        await center.close()
        assert await running == {}


async def test_where_the_last_group_ends_run_raises_what_ended_it_and_names_the_others(harness: Harness) -> None:
    await prepare(harness, "SG_A", "SG_B")
    async with harness.center() as center:
        record(center, "SG_A")
        record(center, "SG_B")
        await center.start()
        running = asyncio.ensure_future(center.run())
        await harness.delete_group("SG_A")
        await ended(center, "SG_A")
        await harness.delete_group("SG_B")
        with pytest.raises(GroupNotFoundError, match="SG_B") as raised:
            await asyncio.wait_for(running, 10)

    (note,) = raised.value.__notes__
    assert note.startswith("group SG_A had ended before: GROUP_NOT_FOUND: ")


async def test_what_runs_in_a_group_that_ends_is_finished_and_its_workers_end(harness: Harness) -> None:
    await prepare(harness, "SG_A", "SG_B")
    begun, gate, finished = threading.Event(), threading.Event(), Recorder()
    async with harness.center() as center:
        record(center, "SG_B")

        @center.subscriber(group="SG_A", topic="TP")
        def handle(message: Message) -> None:
            begun.set()
            gate.wait(20)
            finished.add(message)

        await center.start()
        threads_before = set(threading.enumerate())
        await center.publish("TP", "EC", b"1")
        await asyncio.to_thread(begun.wait, 20)
        (thread,) = [each for each in set(threading.enumerate()) - threads_before if "handler" in each.name]
        await harness.delete_group("SG_A")
        await ended(center, "SG_A")
        gate.set()
        await finished.wait(1)
        await eventually(lambda: not thread.is_alive())
        handlers = [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "handler SG_A"]

    assert handlers == []


async def test_a_group_that_has_ended_may_be_started_again(harness: Harness) -> None:
    await prepare(harness, "SG_A", "SG_B")
    async with harness.center() as center:
        again, left = record(center, "SG_A"), record(center, "SG_B")
        await center.start()
        running = asyncio.ensure_future(center.run())
        await harness.delete_group("SG_A")
        await ended(center, "SG_A")
        with pytest.raises(GroupNotFoundError):
            await center.start()
        assert list(center.ended_groups) == ["SG_A"]

        await harness.register_group("SG_A")
        await harness.subscribe("SG_A", "TP")
        await center.start()
        assert center.ended_groups == {}
        await center.publish("TP", "EC", b"1")
        await harness.received(again, 1)
        await harness.received(left, 1)
        await center.close()
        assert await running == {}


async def test_a_group_that_was_never_attached_is_raised_and_the_others_are_served(harness: Harness) -> None:
    await prepare(harness, "SG")
    async with harness.center() as center:
        record(center, "SG_TYPO")
        served = record(center, "SG")
        with pytest.raises(GroupNotFoundError, match="SG_TYPO"):
            await center.start()
        await center.publish("TP", "EC", b"1")
        await harness.received(served, 1)
        with pytest.raises(GroupNotFoundError, match="SG_TYPO"):
            await center.run()


async def test_blocking_code_hears_of_a_group_that_ends_as_well(blocking_harness: BlockingHarness) -> None:
    await prepare(blocking_harness, "SG_A", "SG_B")
    recorder = Recorder()
    center = blocking_harness.blocking_center()
    center.subscriber(group="SG_A", topic="TP")(lambda message: None)
    center.subscriber(group="SG_B", topic="TP")(recorder.add)
    try:
        await asyncio.to_thread(center.start)
        running = asyncio.ensure_future(asyncio.to_thread(center.run))
        await blocking_harness.delete_group("SG_A")
        await ended(center, "SG_A")
        await asyncio.to_thread(center.publish, "TP", "EC", b"1")
        await blocking_harness.received(recorder, 1)
    finally:
        await asyncio.to_thread(center.close)

    assert {group: type(error) for group, error in (await running).items()} == {"SG_A": GroupNotFoundError}
    assert list(center.ended_groups) == ["SG_A"]


async def test_where_nothing_is_left_for_blocking_code_its_run_raises(blocking_harness: BlockingHarness) -> None:
    await prepare(blocking_harness, "SG")
    center = blocking_harness.blocking_center()
    center.subscriber(group="SG", topic="TP")(lambda message: None)
    try:
        await asyncio.to_thread(center.start)
        running = asyncio.ensure_future(asyncio.to_thread(center.run))
        await blocking_harness.delete_group("SG")
        with pytest.raises(GroupNotFoundError):
            await running
    finally:
        await asyncio.to_thread(center.close)


async def test_a_group_that_has_ended_before_run_is_no_reason_to_end_it(harness: Harness) -> None:
    await prepare(harness, "SG_A", "SG_B")
    async with harness.center() as center:
        record(center, "SG_A")
        left = record(center, "SG_B")
        await center.start()
        await harness.delete_group("SG_A")
        await ended(center, "SG_A")
        running = asyncio.ensure_future(center.run())
        await center.publish("TP", "EC", b"1")
        await harness.received(left, 1)
        assert not running.done()
        await center.close()
        assert list(await running) == ["SG_A"]
