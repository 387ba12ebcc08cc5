"""A job's process: what it tells is heard, and however it ends, nothing of it is left and somebody says why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from msgbroker.contract.errors import DayClaimedError, JobFailedError, SparkMissingError
from msgconsole.local import spark_job
from msgconsole.local.spark_job import JobCommand, Record, run_job
from msgconsole.local.state_file import State, started_ticks
from msgdb.embedded.signals import STOPPING_SIGNALS
from tests.support.eventually import eventually_blocking
from tests.support.processes import left_running

_URL = "postgresql://ada:hush@db/msgdb"

_SAYS = """
import json, os, signal, sys, time

listener = int(sys.argv[2])


def say(**what):
    os.write(listener, (json.dumps(what) + "\\n").encode())

"""
_TELLS = """
say(progress={"step": "claiming"})
say(progress={"step": "writing"})
say(arguments=sys.argv[3:], url=os.environ["MSGCENTER_MSGDB_URL"])
"""
_REFUSED = 'say(error={"reason": "DAY_CLAIMED", "message": "another has it"})\nsys.exit(1)'
_FAILED = 'say(error={"reason": "JOB_FAILED", "message": "the job failed: no disk"})\nsys.exit(1)'
_DIES = 'print("what Java said last", file=sys.stderr)\nsys.exit(3)'
_IS_KILLED = "os.kill(os.getpid(), signal.SIGKILL)"
_WAITS = """
def end(*_):
    {at_the_end}
    sys.exit(130)


signal.signal(signal.SIGINT, end)
say(progress={{"pid": os.getpid()}})
while True:
    time.sleep(60)
"""
_ENDS_WITH_LISTENER = """
import asyncio
from spark_etl.ending import end_with_listener, interrupt_by_signals


async def wait():
    try:
        say(progress={"pid": os.getpid()})
        await asyncio.sleep(60)
    finally:
        print("ended in good order", flush=True)


interrupt_by_signals()
end_with_listener(listener)
asyncio.run(wait())
"""
_STARTER = """
import sys
from msgconsole.local.spark_job import JobCommand, run_job

run_job(
    JobCommand("archive", [], "local", None, program=(sys.executable, "-c", sys.argv[1])),
    lambda told: print(told["pid"], flush=True),
)
"""


def job(program: str, *arguments: str) -> JobCommand:
    return JobCommand("archive", arguments, "local[*]", _URL, program=(sys.executable, "-c", _SAYS + program))


def nobody(_: Record) -> None:
    """Take no notice."""


def stop(_: Record) -> None:
    signal.raise_signal(signal.SIGTERM)


@pytest.fixture(autouse=True)
def handlers_restored() -> Iterator[None]:
    """Put back what a stop leaves: it is for the end of a program."""
    handlers = {number: signal.getsignal(number) for number in STOPPING_SIGNALS}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where logs are made while no `msgcenter up` runs."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def test_what_it_tells_is_handed_on_and_its_result_returned(logs: Path) -> None:
    told: list[Record] = []
    done = run_job(job(_TELLS, "--day", "2026-11-17"), told.append)
    assert [each["step"] for each in told] == ["claiming", "writing"]
    # The password is in no argument.
    assert done == {"arguments": ["--master", "local[*]", "archive", "--day", "2026-11-17"], "url": _URL}
    assert list(logs.iterdir()) == []


def test_what_it_is_refused_with_is_raised(logs: Path) -> None:
    with pytest.raises(DayClaimedError, match="another has it"):
        run_job(job(_REFUSED), nobody)
    assert list(logs.iterdir()) == []


def test_where_it_failed_its_log_is_named_and_stays(logs: Path) -> None:
    with pytest.raises(JobFailedError, match="the job failed: no disk; its log is ") as raised:
        run_job(job(_FAILED), nobody)
    (log,) = logs.iterdir()
    assert raised.value.message.endswith(str(log))


def test_a_job_that_dies_is_told_with_the_end_of_its_log(logs: Path) -> None:
    with pytest.raises(JobFailedError, match="it ended with status 3 without a word") as raised:
        run_job(job(_DIES), nobody)
    (log,) = logs.iterdir()
    assert raised.value.message.splitlines()[1:] == [f"The end of {log}:", "  what Java said last"]


def test_a_job_that_is_killed_is_told_with_its_log(logs: Path) -> None:
    with pytest.raises(JobFailedError, match="it was ended by signal 9 without a word; its log is "):
        run_job(job(_IS_KILLED), nobody)


def test_a_signal_ends_it_in_good_order() -> None:
    pids: list[int] = []

    steps: list[str] = []

    def note_and_stop(told: Record) -> None:
        if "pid" in told:
            pids.append(told["pid"])
            stop(told)
        else:
            steps.append(told["step"])

    assert run_job(job(_WAITS.format(at_the_end="pass")), note_and_stop) is None
    assert not psutil.pid_exists(pids[0])
    assert steps == ["ending it in good order"]


def test_a_result_that_it_has_when_it_is_to_end_counts() -> None:
    assert run_job(job(_WAITS.format(at_the_end="say(archived=[])")), stop) == {"archived": []}


def test_one_that_does_not_end_is_killed_with_what_it_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_job, "_END_SECONDS_MAX", 0.2)
    monkeypatch.setattr(spark_job, "_TERMINATE_SECONDS_MAX", 0.2)
    children: list[psutil.Process] = []
    deaf = """
import subprocess
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
say(progress={"pid": child.pid})
time.sleep(60)
"""

    def note_and_stop(told: Record) -> None:
        if "pid" in told:
            children.append(psutil.Process(told["pid"]))
            stop(told)

    assert run_job(job(deaf), note_and_stop) is None
    eventually_blocking(lambda: left_running(children) == [])


def test_beside_a_running_center_its_log_is_kept_with_the_center(tmp_path: Path) -> None:
    directory = tmp_path / ".msgcenter"
    directory.mkdir()
    ticks = started_ticks(os.getpid()) or 0
    State(os.getpid(), ticks, "127.0.0.1:1", os.getpid(), ticks, _URL, _URL).write(directory)
    log = directory / "etl-archive.log"
    log.write_text("what an earlier run said\n")
    with pytest.raises(JobFailedError) as raised:
        run_job(job(_DIES), nobody)
    assert raised.value.message.splitlines()[1:] == [f"The end of {log}:", "  what Java said last"]
    assert log.read_text().startswith("what an earlier run said\n")


def test_without_what_jobs_need_nothing_is_started(monkeypatch: pytest.MonkeyPatch, logs: Path) -> None:
    monkeypatch.setattr(spark_job, "_NEEDED", ("pyspark", "nobody_has_this"))
    with pytest.raises(SparkMissingError, match=r"pip install 'msgcenter\[spark\]'"):
        run_job(job(_TELLS), nobody)
    assert list(logs.iterdir()) == []


def test_a_job_whose_command_is_killed_ends_by_itself(logs: Path) -> None:
    environment: dict[str, Any] = {**os.environ, "TMPDIR": str(logs)}
    with subprocess.Popen(
        [sys.executable, "-c", _STARTER, _SAYS + _ENDS_WITH_LISTENER],
        env=environment,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as starter:
        assert starter.stdout is not None
        running = psutil.Process(int(starter.stdout.readline()))
        starter.kill()
    eventually_blocking(lambda: left_running([running]) == [])
    (log,) = logs.iterdir()
    assert "ended in good order" in log.read_text()
