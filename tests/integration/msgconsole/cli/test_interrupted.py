"""Told to stop in the very moment in which a process was started: nothing runs on by itself.

The signal comes right after the fork, when it is too early for whoever will stop the process: it is in a session of its
own, where Ctrl-C does not reach it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from msgbroker.contract.errors import BrokerFailedError
from msgconsole.local.center import LocalCenter, LocalCenterConfig
from msgconsole.local.stopping import StoppedBySignals
from msgconsole.local.worker_pool import WorkerPool
from msgdb.embedded.signals import STOPPING_SIGNALS

_SLEEPER = (sys.executable, "-c", "import time; time.sleep(60)")

Processes = list[subprocess.Popen[Any]]


@pytest.fixture(autouse=True)
def handlers_restored() -> Iterator[None]:
    """Put back what StoppedBySignals leaves: it is for the end of a program."""
    handlers = {number: signal.getsignal(number) for number in STOPPING_SIGNALS}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    """Return the sleepers that this process has started; with each of them it is told to stop."""
    processes: Processes = []
    popen = subprocess.Popen

    def start(command: Any, *args: Any, **kwargs: Any) -> subprocess.Popen[Any]:
        process = popen(command, *args, **kwargs)
        if _SLEEPER[-1] in command:
            processes.append(process)
            signal.raise_signal(signal.SIGTERM)
        return process

    monkeypatch.setattr(subprocess, "Popen", start)
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def running(processes: Processes) -> list[int]:
    return [process.pid for process in processes if process.poll() is None]


def test_up_leaves_no_broker(started: Processes, database_url: str, tmp_path: Path, free_port: int) -> None:
    directory = tmp_path / "center"
    config = LocalCenterConfig(directory, f"127.0.0.1:{free_port}", database_url, database_url, _SLEEPER)
    with StoppedBySignals(), LocalCenter(config, lambda _: None):
        pytest.fail("it was told to stop")
    assert (len(started), running(started)) == (1, [])
    assert sorted(path.name for path in directory.iterdir()) == ["broker.log", "up.lock"]


def test_a_pool_leaves_no_worker(started: Processes) -> None:
    with StoppedBySignals(), ExitStack() as stack:
        pool = WorkerPool(_SLEEPER, 4, dict(os.environ))
        stack.callback(pool.stop)
        pytest.fail("it was told to stop")
    assert running(started) == []


def test_workers_are_ended_when_a_later_one_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    started: Processes = []
    popen = subprocess.Popen

    def start(*args: Any, **kwargs: Any) -> subprocess.Popen[Any]:
        if len(started) == 2:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        started.append(popen(*args, **kwargs))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(BrokerFailedError, match="worker 3 cannot be started: Resource temporarily unavailable"):
        WorkerPool(_SLEEPER, 4, dict(os.environ))
    assert (len(started), running(started)) == (2, [])


def test_a_signal_while_it_stops_already_neither_breaks_that_off_nor_hides_why(
    database_url: str, tmp_path: Path, free_port: int
) -> None:
    def say(sentence: str) -> None:
        if sentence == "Stopping the broker ...":
            signal.raise_signal(signal.SIGTERM)

    broker = (sys.executable, "-c", "raise SystemExit(3)")
    config = LocalCenterConfig(tmp_path, f"127.0.0.1:{free_port}", database_url, database_url, broker)
    with (
        pytest.raises(BrokerFailedError, match="the broker ended with status 3"),
        StoppedBySignals(),
        LocalCenter(config, say),
    ):
        pytest.fail("its broker has ended")


def test_what_nohup_has_started_outlives_its_terminal() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with StoppedBySignals():
        signal.raise_signal(signal.SIGHUP)
