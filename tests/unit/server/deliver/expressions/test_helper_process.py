"""The helper process: a real one, asked, killed, frozen, and asked too much."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from msgbroker.server.deliver.expressions.helper_frames import HelperBounds, Question, Request
from msgbroker.server.deliver.expressions.helper_process import HelperConfig, HelperDiedError, HelperProcess
from tests.support.eventually import eventually
from tests.support.helper_questions import FOR_EVER, LONG

pytestmark = pytest.mark.slow

IS_HZ = 'headers.region == "hz"'
ASKED = Request((IS_HZ,), (Question({"region": "hz"}, (0,)), Question({"region": "sh"}, (0,))), 9.0)
ALL_MEMORY = "[headers.a]" + ".map(x, x + x)" * 24 + '[0] == ""'

Start = Callable[..., Awaitable[HelperProcess]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Return a function that starts a helper process; bounds and configuration by name."""
    started: list[HelperProcess] = []

    async def start(*, now: Callable[[], float] = time.monotonic, **settings: Any) -> HelperProcess:
        names = {field.name for field in dataclasses.fields(HelperBounds)}
        bounds = HelperBounds(**{"niceness": 0, **{name: settings.pop(name) for name in names & settings.keys()}})
        helper = HelperProcess(HelperConfig(bounds, **{"restart_seconds_min": 0.0, **settings}), now)
        started.append(helper)
        assert await helper.is_ready(), helper.problem
        return helper

    yield start
    for helper in started:
        helper.close()


def autogroup_of(pid: int) -> str:
    """Return how its session is weighed, where the system weighs sessions."""
    try:
        return Path(f"/proc/{pid}/autogroup").read_text()
    except OSError:
        return ""


async def is_gone(pid: int) -> None:
    await eventually(lambda: not psutil.pid_exists(pid), 20)


async def test_it_answers_what_it_is_asked_again_and_again(start: Start) -> None:
    helper = await start()

    for _ in range(3):
        assert (await helper.ask(ASKED)).outcomes == ((1,), (0,))


async def test_it_says_how_long_it_took_however_short_and_stops_when_its_time_is_over(start: Start) -> None:
    helper = await start()
    assert (await helper.ask(ASKED)).seconds > 0.0

    nested = "headers.all(a, headers.all(b, a + b != ''))"
    answer = await helper.ask(Request((nested,), (Question(LONG, (0,)),) * 256, 0.02))
    assert answer.seconds >= 0.02
    assert len(answer.outcomes) < 256


async def test_an_evaluation_that_takes_too_long_is_ended_and_the_next_helper_goes_on(start: Start) -> None:
    helper = await start(cpu_seconds_max=0.3)
    first = helper.pid
    with pytest.raises(HelperDiedError, match=r"takes more than 0\.3 s"):
        await helper.ask(Request((FOR_EVER,), (Question(LONG, (0,)),), 0.1))

    assert await helper.is_ready()
    assert helper.pid != first
    assert (await helper.ask(ASKED)).outcomes == ((1,), (0,))


async def test_time_is_counted_for_each_request_alone(start: Start) -> None:
    helper = await start(cpu_seconds_max=0.5)
    nested = "headers.all(a, headers.all(b, a + b != '')) && headers.all(a, headers.all(b, a + b != ''))"
    # Each of them is done in a few milliseconds, all of them together are not.
    for _ in range(200):
        await helper.ask(Request((nested,), (Question(LONG, (0,)),), 9.0))


async def test_an_evaluation_that_takes_all_memory_ends_the_helper_and_nothing_else(start: Start) -> None:
    helper = await start()
    with pytest.raises(HelperDiedError, match="takes more than 1024 MiB of memory"):
        await helper.ask(Request((ALL_MEMORY,), (Question(LONG, (0,)),), 0.1))

    assert await helper.is_ready()
    assert (await helper.ask(ASKED)).outcomes == ((1,), (0,))


async def test_when_it_is_killed_while_it_has_nothing_to_do_that_is_noticed_with_the_next_question(
    start: Start,
) -> None:
    helper = await start()
    assert helper.pid is not None
    os.kill(helper.pid, signal.SIGKILL)
    with pytest.raises(HelperDiedError, match="SIGKILL"):
        await helper.ask(ASKED)

    assert await helper.is_ready()
    assert (await helper.ask(ASKED)).outcomes == ((1,), (0,))


async def test_a_helper_that_is_frozen_is_waited_for_only_so_long(start: Start) -> None:
    helper = await start(answer_seconds_max=0.2)
    pid = helper.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(HelperDiedError, match=r"no answer within 0\.2 s"):
        await helper.ask(ASKED)

    await is_gone(pid)


async def test_it_ends_by_itself_when_the_broker_is_gone_even_while_it_rests(start: Start) -> None:
    helper = await start()
    nested = "headers.all(a, headers.all(b, headers.all(c, a + b + c != '')))"
    await helper.ask(Request((nested,) * 100, (Question(LONG, tuple(range(100))),), 9.0))
    assert helper.pid is not None
    process = psutil.Process(helper.pid)
    helper._hang_up()

    await eventually(lambda: process.status() == psutil.STATUS_ZOMBIE, 20)


async def test_it_ends_when_the_broker_is_gone_even_in_the_middle_of_an_evaluation(start: Start) -> None:
    helper = await start(cpu_seconds_max=1_000.0)
    assert helper.pid is not None
    process = psutil.Process(helper.pid)
    asking = asyncio.create_task(helper.ask(Request((FOR_EVER,), (Question(LONG, (0,)),), 0.1)))
    worked_before = process.cpu_times().user
    await eventually(lambda: process.cpu_times().user > worked_before + 0.1, 30)
    asking.cancel()
    helper._hang_up()
    at_its_end = process.cpu_times().user
    await eventually(lambda: process.status() == psutil.STATUS_ZOMBIE, 20)

    # Half a minute's work is not done to its end.
    assert at_its_end < 15.0


async def test_it_does_not_end_when_a_whole_group_of_processes_is_told_to_stop(start: Start) -> None:
    helper = await start()
    assert helper.pid is not None
    os.kill(helper.pid, signal.SIGTERM)
    os.kill(helper.pid, signal.SIGINT)

    assert (await helper.ask(ASKED)).outcomes == ((1,), (0,))


async def test_it_rests_as_long_as_it_worked(start: Start) -> None:
    helper = await start()
    nested = "headers.all(a, headers.all(b, a + b != ''))"
    heavy = Request((nested,), (Question(LONG, (0,)),) * 256, 0.2)
    started_at = time.monotonic()
    worked = (await helper.ask(heavy)).seconds + (await helper.ask(heavy)).seconds
    await helper.ask(ASKED)

    assert time.monotonic() - started_at >= 2 * worked


async def test_it_takes_little_and_knows_no_passwords(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSGCENTER_MSGDB_URL", "postgresql://u:hush@h/m")
    helper = await start(niceness=19, memory_bytes_max=700 * 2**20)
    process = psutil.Process(helper.pid)

    assert process.nice() == 19
    assert process.rlimit(psutil.RLIMIT_AS) == (700 * 2**20, 700 * 2**20)
    assert "hush" not in str(process.environ())
    assert os.getsid(process.pid) == process.pid
    autogroup = autogroup_of(process.pid)
    assert autogroup == "" or autogroup.endswith(" nice 19\n")


async def test_what_dies_again_and_again_is_started_later_and_later(start: Start) -> None:
    clock = [0.0]
    helper = await start(now=lambda: clock[0], restart_seconds_min=1.0, restart_seconds_max=3.0)
    waits = []
    for _ in range(4):
        assert helper.pid is not None
        os.kill(helper.pid, signal.SIGKILL)
        with pytest.raises(HelperDiedError):
            await helper.ask(ASKED)
        assert "SIGKILL" in helper.problem
        began_at = clock[0]
        while not await helper.is_ready():
            clock[0] += 0.5
        waits.append(clock[0] - began_at)
    assert waits == [1.0, 2.0, 3.0, 3.0]

    await helper.ask(ASKED)
    assert helper.problem == ""
    os.kill(helper.pid or 0, signal.SIGKILL)
    with pytest.raises(HelperDiedError):
        await helper.ask(ASKED)
    clock[0] += 1.0
    assert await helper.is_ready()


async def test_a_helper_that_cannot_be_started_is_said_to_be_so_and_is_tried_again(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = await start()
    helper._hang_up()
    helper._kill()
    with monkeypatch.context() as broken:
        broken.setattr(sys, "executable", "/nowhere/python")
        assert not await helper.is_ready()
        assert "it cannot be started" in helper.problem
        # One that ends at once.
        broken.setattr(sys, "executable", "/bin/false")
        assert not await helper.is_ready()
        assert "ended with status 1" in helper.problem
    await asyncio.sleep(0)

    assert await helper.is_ready()
    assert (await helper.ask(ASKED)).outcomes == ((1,), (0,))


async def test_what_has_nothing_to_do_for_long_is_ended_and_comes_back_when_it_is_needed(start: Start) -> None:
    clock = [0.0]
    helper = await start(now=lambda: clock[0], idle_seconds_max=10.0)
    first = helper.pid
    clock[0] = 9.0
    await helper.ask(ASKED)
    clock[0] = 18.0
    await helper.rest()
    assert helper.pid == first
    clock[0] = 20.0
    await helper.rest()
    assert helper.pid is None

    assert await helper.is_ready()
    assert (await helper.ask(ASKED)).outcomes == ((1,), (0,))


async def test_after_its_end_it_is_not_started_any_more(start: Start) -> None:
    helper = await start()
    pid = helper.pid
    assert pid is not None
    helper.close()

    assert not await helper.is_ready()
    assert not psutil.pid_exists(pid)


async def test_one_that_is_closed_while_it_starts_leaves_nothing_behind() -> None:
    helper = HelperProcess()
    starting = asyncio.ensure_future(helper.is_ready())
    await asyncio.sleep(0)
    helper.close()

    assert not await starting
    assert helper.pid is None
