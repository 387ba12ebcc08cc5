"""SIGINT and SIGTERM end `run` in good order, in real processes; what is the application's is left to it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from msgbroker.client import InvalidSettingError, Message, MessageCenter, SyncMessageCenter
from msgbroker.client.testing import InMemoryCenter, SyncInMemoryCenter
from tests.support.daemon_thread import in_thread
from tests.support.eventually import eventually, eventually_blocking
from tests.support.fake_broker import FakeBroker, SubscribeCall

pytestmark = pytest.mark.slow

ACK = 1
Center = TypeVar("Center", MessageCenter, SyncMessageCenter)
STOPPING = [signal.SIGINT, signal.SIGTERM]

_ASYNC = """
import asyncio, sys, time
from msgbroker.client import MessageCenter

center = MessageCenter(sys.argv[1])

@center.subscriber(group="SG", topic="TP")
async def handle(body: bytes) -> None:
    print("begun", flush=True)
    {wait}

async def main() -> None:
    async with center:
        await center.run()
    print("left", flush=True)

{start}
"""
_SYNC = """
import sys
from msgbroker.client import SyncMessageCenter

with SyncMessageCenter(sys.argv[1]) as center:

    @center.subscriber(group="SG", topic="TP")
    def handle(body: bytes) -> None:
        print("begun", flush=True)
        sys.stdin.readline()

    center.run()
print("left", flush=True)
"""
_UNTIL_TOLD = "await asyncio.to_thread(sys.stdin.readline)"
_RUN = "asyncio.run(main())"
_UVLOOP = "import uvloop\nuvloop.run(main())"
PROGRAMS = {
    "async": _ASYNC.format(wait=_UNTIL_TOLD, start=_RUN),
    "uvloop": _ASYNC.format(wait=_UNTIL_TOLD, start=_UVLOOP),
    "sync": _SYNC,
}


@contextlib.asynccontextmanager
async def service(program: str, address: str, tmp_path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program in a process, and a process group, of its own."""
    script = tmp_path / "service.py"
    script.write_text(program)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), address, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def at_work(process: asyncio.subprocess.Process, broker: FakeBroker) -> SubscribeCall:
    """Give the service a message; return its stream once the handler is at it."""
    call = await asyncio.wait_for(broker.subscribe_calls.get(), 30)
    call.deliver(b"1")
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 30) == b"begun\n"
    return call


@pytest.mark.parametrize("number", STOPPING)
@pytest.mark.parametrize("kind", PROGRAMS)
async def test_a_service_that_is_told_to_stop_finishes_what_it_is_at(
    broker: FakeBroker, tmp_path: Path, kind: str, number: signal.Signals
) -> None:
    async with service(PROGRAMS[kind], broker.address, tmp_path) as process:
        call = await at_work(process, broker)
        # As a terminal does it: to the whole group.
        os.killpg(process.pid, number)
        await eventually(lambda: call.paused)
        out, err = await asyncio.wait_for(process.communicate(b"\n"), 20)

    assert (process.returncode, out, err) == (0, b"left\n", b"")
    assert call.verdicts == [(0, ACK, 1)]
    assert call.half_closed.is_set()


@pytest.mark.parametrize("kind", PROGRAMS)
@pytest.mark.parametrize("numbers", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT)])
async def test_a_second_signal_ends_a_service_at_once(
    broker: FakeBroker, tmp_path: Path, kind: str, numbers: tuple[signal.Signals, signal.Signals]
) -> None:
    async with service(PROGRAMS[kind], broker.address, tmp_path) as process:
        call = await at_work(process, broker)
        process.send_signal(numbers[0])
        await eventually(lambda: call.paused)
        process.send_signal(numbers[1])
        assert await asyncio.wait_for(process.wait(), 5) == -numbers[1]
        assert process.stderr is not None
        assert b"Traceback" not in await process.stderr.read()

    assert call.verdicts == []


async def test_a_handler_that_holds_the_event_loop_up_does_not_keep_a_second_signal_from_ending_it(
    broker: FakeBroker, tmp_path: Path
) -> None:
    program = _ASYNC.format(wait="time.sleep(100)", start=_RUN)
    async with service(program, broker.address, tmp_path) as process:
        await at_work(process, broker)
        # As often as it takes until one was seen: two that come together are one.
        async with asyncio.timeout(10):
            while process.returncode is None:
                process.send_signal(signal.SIGINT)
                await asyncio.wait([asyncio.ensure_future(process.wait())], timeout=0.1)

    assert process.returncode == -signal.SIGINT


async def test_a_service_without_a_broker_stops_as_well(free_port: int, tmp_path: Path) -> None:
    program = "import logging; logging.basicConfig(level=20)\n" + PROGRAMS["async"]
    async with service(program, f"127.0.0.1:{free_port}", tmp_path) as process:
        assert process.stderr is not None
        assert b"broker_not_reached" in await asyncio.wait_for(process.stderr.readline(), 30)
        process.send_signal(signal.SIGTERM)
        out, err = await asyncio.wait_for(process.communicate(), 20)

    assert (process.returncode, out) == (0, b"left\n")
    assert b"center.close_begun: signal=SIGTERM: running handlers may take 10 s more; a second signal ends" in err
    assert b"Traceback" not in err


# --- whose signals they are -------------------------------------------------------------------------------------------


def handlers_now() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in STOPPING}


@pytest.fixture(autouse=True)
def handlers_before() -> Iterator[dict[int, Any]]:
    """Return what handles the signals as a test begins; it must do so again when it ends."""
    before = handlers_now()
    yield before
    after = handlers_now()
    for number, handler in before.items():
        signal.signal(number, handler)
    assert after == before


def with_handler(center: Center) -> Center:
    @center.subscriber(group="SG", topic="TP")
    def handle(message: Message) -> None: ...

    return center


async def begun(center: MessageCenter, **options: Any) -> asyncio.Task[Any]:
    """Begin to run, and return once it does."""
    running: asyncio.Task[Any] = asyncio.ensure_future(with_handler(center).run(**options))
    await eventually(lambda: center._core._subscribers._streams)
    return running


@pytest.mark.parametrize("number", STOPPING)
async def test_the_first_signal_closes_all_centers_that_run_and_says_so(
    number: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "msgbroker.client")
    running = [await begun(InMemoryCenter(drain_timeout_seconds=seconds)) for seconds in (3, 4.5)]
    signal.raise_signal(number)
    async with asyncio.timeout(10):
        assert await asyncio.gather(*running) == [{}, {}]

    assert [record.getMessage() for record in caplog.records if "close_begun" in record.getMessage()] == [
        f"center.close_begun: signal={number.name}: running handlers may take {seconds} s more; "
        "a second signal ends the process at once"
        for seconds in ("3", "4.5")
    ]


async def test_what_the_application_handles_itself_is_left_to_it() -> None:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, told.set)
    try:
        center = InMemoryCenter()
        running = await begun(center)
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(told.wait(), 10)
        assert not running.done()
        # The other one is nobody's.
        signal.raise_signal(signal.SIGINT)
        await asyncio.wait_for(running, 10)
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def test_handle_signals_takes_also_what_the_application_handles_and_gives_it_back() -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        running = await begun(InMemoryCenter(), handle_signals=True)
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(running, 10)
        assert came == []
        signal.raise_signal(signal.SIGTERM)
        assert came == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_a_second_signal_is_for_the_handler_of_the_application() -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        running = await begun(InMemoryCenter(), handle_signals=True)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert came == [signal.SIGTERM]
        await asyncio.wait_for(running, 10)
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_signals_are_not_touched_where_run_is_told_so_and_by_start() -> None:
    before = handlers_now()
    async with InMemoryCenter() as center:
        running = await begun(center, handle_signals=False)
        await center.start()
        assert handlers_now() == before
    await running


async def test_a_run_that_is_given_up_gives_the_signals_back() -> None:
    before = handlers_now()
    async with InMemoryCenter() as center:
        running = await begun(center)
        assert handlers_now() != before
        running.cancel()
        await asyncio.wait([running])
        assert handlers_now() == before


async def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        async with InMemoryCenter() as center:
            running = await begun(center)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        await running
    finally:
        signal.signal(signal.SIGINT, before)


def test_in_another_thread_signals_are_nobodys_unless_they_are_asked_for() -> None:
    async def run(**options: Any) -> None:
        async with InMemoryCenter() as center:
            running = await begun(center, **options)
            await center.close()
            await running

    assert in_thread(lambda: asyncio.run(run())).result(20) is None
    with SyncInMemoryCenter() as center:
        asking = in_thread(lambda: with_handler(center).run(handle_signals=True))
        with pytest.raises(InvalidSettingError, match="is True in a thread that is not the main one"):
            asking.result(20)


async def test_handle_signals_is_a_bool_or_none() -> None:
    wrong: Any = "yes"
    async with InMemoryCenter() as center:
        with pytest.raises(InvalidSettingError, match="handle_signals is 'yes' of type str; bool or None is wanted"):
            await center.run(handle_signals=wrong)


_FORKING = """
import asyncio, os, signal, sys
from msgbroker.client.testing import InMemoryCenter

center = InMemoryCenter()
ready, told = os.pipe()

@center.subscriber(group="SG", topic="TP")
async def handle(body: bytes) -> None:
    child = os.fork()
    if not child:
        os.write(told, b"1")
        while True:
            signal.pause()
    os.read(ready, 1)
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

async def main() -> None:
    await center.publish("TP", "EC")
    await center.run()

asyncio.run(main())
"""


async def test_a_process_that_is_forked_meanwhile_is_ended_by_a_signal_as_ever(tmp_path: Path) -> None:
    async with service(_FORKING, "", tmp_path) as process:
        out, err = await asyncio.wait_for(process.communicate(), 20)
        with contextlib.suppress(ProcessLookupError):
            # The child, where nothing has ended it.
            os.killpg(process.pid, signal.SIGKILL)

    assert (process.returncode, out.split(), err) == (0, [b"%d" % -signal.SIGTERM], b"")


@pytest.mark.parametrize("number", STOPPING)
def test_blocking_code_that_runs_in_the_main_thread_is_told_alike(
    number: signal.Signals, handlers_before: dict[int, Any]
) -> None:
    def kill() -> None:
        eventually_blocking(lambda: handlers_now() != handlers_before)
        os.kill(os.getpid(), number)

    with with_handler(SyncInMemoryCenter()) as center:
        killing = in_thread(kill)
        assert center.run() == {}
        killing.result()
        with pytest.raises(Exception, match="is closed"):
            center.publish("TP", "EC")


def test_a_signal_that_comes_before_blocking_code_waits_ends_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with with_handler(SyncInMemoryCenter()) as center:
        call = center._background.call

        def call_late(coroutine: Any) -> Any:
            signal.raise_signal(signal.SIGTERM)
            return call(coroutine)

        monkeypatch.setattr(center._background, "call", call_late)
        assert center.run() == {}


# --- what is said -----------------------------------------------------------------------------------------------------


async def test_closing_that_takes_long_says_what_it_waits_for(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.answers_held.clear()
    gate, is_begun = asyncio.Event(), asyncio.Event()
    center = MessageCenter(broker.address, drain_timeout_seconds=20)

    @center.subscriber(group="SG", topic="TP")
    async def handle(message: Message) -> None:
        is_begun.set()
        await gate.wait()

    await center.start()
    (await broker.subscribe_calls.get()).deliver(b"1", b"2")
    unanswered = center.publish_soon("TP", "EC")
    await is_begun.wait()
    closing = asyncio.ensure_future(center.close())
    await eventually(lambda: "waits up to" in caplog.text)
    gate.set()
    broker.answers_held.set()
    await closing
    await unanswered

    (said,) = [record.getMessage() for record in caplog.records if "waits up to" in record.getMessage()]
    assert said.startswith("center.close_delayed: waits up to 19 s more for handlers of group SG: ")
    assert said.endswith(", unanswered messages: 1")


async def test_a_center_without_handlers_says_that_it_only_waits(caplog: pytest.LogCaptureFixture) -> None:
    async with InMemoryCenter() as center:
        running = asyncio.ensure_future(center.run())
        await eventually(lambda: "no handler is declared" in caplog.text)
        assert not running.done()
    await running


def test_blocking_code_may_be_told_not_to_handle_signals(handlers_before: dict[int, Any]) -> None:
    center = with_handler(SyncInMemoryCenter())

    def look_and_close() -> dict[int, Any]:
        eventually_blocking(lambda: center._core._subscribers._streams)
        seen = handlers_now()
        center.close()
        return seen

    looking = in_thread(look_and_close)
    center.run(handle_signals=False)
    assert looking.result() == handlers_before


def test_the_client_can_be_imported_where_processes_do_not_fork() -> None:
    # `random` has asked for it before: it is not ours.
    program = """
import os, random
del os.register_at_fork
from msgbroker.client import MessageCenter, SyncMessageCenter
MessageCenter("127.0.0.1:7400"), SyncMessageCenter("127.0.0.1:7400")
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
