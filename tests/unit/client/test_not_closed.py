"""A program that ends without closing its center hears so, in one line, and of nothing else."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

import pytest

from msgbroker.client import CenterClosedError, MessageCenter, MessageCenterError
from tests.support.eventually import eventually
from tests.support.fake_broker import FakeBroker, ThreadedBroker

pytestmark = pytest.mark.slow

_ASYNC = """
import asyncio, sys
from msgbroker.client import MessageCenter

async def main() -> None:
    center = MessageCenter(sys.argv[1])

    @center.subscriber(group="SG", topic="TP")
    async def handle(body: bytes) -> None:
        print("begun", flush=True)
        await asyncio.Event().wait()

    await center.start()
    futures = [center.publish_soon("TP", "EC") for _ in range({count})]
    await center.flush() if {is_answered} else await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""
_SYNC = """
import sys
from msgbroker.client import SyncMessageCenter

center = SyncMessageCenter(sys.argv[1])

@center.subscriber(group="SG", topic="TP")
def handle(body: bytes) -> None:
    print("begun", flush=True)
    sys.stdin.readline()

center.start()
futures = [center.publish_soon("TP", "EC") for _ in range({count})]
center.flush() if {is_answered} else sys.stdin.readline()
"""
_SAID = {
    _ASYNC: b"center.not_closed: this MessageCenter was not closed: use `async with`, or await close()",
    _SYNC: b"center.not_closed: this SyncMessageCenter was not closed: use `with`, or call close()",
}


async def begin(program: str, broker: FakeBroker, tmp_path: Path) -> asyncio.subprocess.Process:
    """Start a program."""
    script = tmp_path / "program.py"
    script.write_text(program)
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, str(script), broker.address, stdin=pipe, stdout=pipe, stderr=pipe
    )


async def run(program: str, broker: FakeBroker, tmp_path: Path) -> tuple[int | None, bytes]:
    """Run a program; return its status and what it said."""
    process = await begin(program, broker, tmp_path)
    call = await asyncio.wait_for(broker.subscribe_calls.get(), 30)
    if not broker.answers_held.is_set():
        call.deliver(b"1")
        assert process.stdout is not None
        await asyncio.wait_for(process.stdout.readline(), 30)
        await eventually(lambda: broker.frames)
    _, err = await asyncio.wait_for(process.communicate(os.linesep.encode()), 30)
    return process.returncode, err


@pytest.mark.parametrize("program", [_ASYNC, _SYNC], ids=["async", "sync"])
async def test_a_program_that_forgets_to_close_is_told_so(broker: FakeBroker, tmp_path: Path, program: str) -> None:
    done = await run(program.format(count=3, is_answered=True), broker, tmp_path)

    assert done == (0, _SAID[program] + b"\n")


@pytest.mark.parametrize("program", [_ASYNC, _SYNC], ids=["async", "sync"])
async def test_it_is_told_how_many_messages_are_not_answered(broker: FakeBroker, tmp_path: Path, program: str) -> None:
    broker.answers_held.clear()
    done = await run(program.format(count=3, is_answered=False), broker, tmp_path)
    broker.answers_held.set()

    assert done == (0, _SAID[program] + b"; 3 published and not answered may be lost\n")


async def test_a_program_that_only_publishes_and_has_its_answers_hears_of_nothing(
    broker: FakeBroker, tmp_path: Path
) -> None:
    program = """
import sys
from msgbroker.client import SyncMessageCenter

SyncMessageCenter(sys.argv[1]).publish("TP", "EC")
"""

    process = await begin(program, broker, tmp_path)

    assert await asyncio.wait_for(process.communicate(), 30) == (b"", b"")
    assert process.returncode == 0


def test_a_center_whose_loop_has_ended_is_closed_in_the_next_one(served: ThreadedBroker) -> None:
    center = MessageCenter(served.address)
    center.subscriber(group="SG", topic="TP")(handle)
    asyncio.run(start_and_publish(center))

    with pytest.raises(CenterClosedError):
        asyncio.run(publish(center))
    with pytest.raises(CenterClosedError):
        center.publish_one_way("TP", "EC")
    asyncio.run(center.close())


async def handle(body: bytes) -> None: ...


async def start_and_publish(center: MessageCenter) -> None:
    await center.start()
    await publish(center)


async def publish(center: MessageCenter) -> None:
    await center.publish("TP", "EC")


async def test_a_task_of_ours_that_somebody_cancels_is_a_failure_as_ever(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with MessageCenter(broker.address) as center:
        await center.publish("TP", "EC")
        (publisher,) = [task for task in asyncio.all_tasks() if task.get_name() == "publisher"]
        publisher.cancel()
        await asyncio.wait([publisher])
        with pytest.raises(MessageCenterError, match="its task was cancelled, and not by closing the center"):
            await center.publish("TP", "EC")

    assert [record.levelno for record in caplog.records if "was cancelled" in record.getMessage()] == [logging.CRITICAL]
