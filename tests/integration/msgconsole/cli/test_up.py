"""`msgcenter up` as a process: what it prints, how it stops, and what it says when something is in its way."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest

from msgconsole.local import places
from tests.support.processes import left_running

_STAND_IN = Path(__file__).with_name("health_only_broker.py")

# `msgcenter up`, but with a broker that only says that it is healthy.
_PROGRAM = """
import sys
from pathlib import Path
from msgbroker.contract.errors import MessageCenterError
from msgconsole.cli.commands.running.up import serve
from msgconsole.local.center import LocalCenterConfig
try:
    serve(LocalCenterConfig(Path(sys.argv[1]), f"127.0.0.1:{sys.argv[2]}", broker_command=sys.argv[3:]))
except MessageCenterError as error:
    sys.exit(error.message)
"""

# Below nohup it is ignored, as it should be.
_HEEDS_SIGHUP = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"


@contextmanager
def up(directory: Path, port: int, *broker_options: str) -> Iterator[subprocess.Popen[str]]:
    broker = [sys.executable, str(_STAND_IN), *broker_options]
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(directory), str(port), *broker],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


def read_until_up(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if line.startswith("Ctrl-C stops it"):
            return seen
    pytest.fail(f"it did not come up:\n{seen}")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / ".msgcenter"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_comes_up_says_where_things_are_and_a_signal_stops_all_of_it(
    directory: Path, free_port: int, number: signal.Signals
) -> None:
    with up(directory, free_port) as process:
        said = read_until_up(process)
        assert f"127.0.0.1:{free_port}" in said
        state = places.find_state(directory.parent)
        assert state is not None
        with psycopg.connect(state.msgdb_url) as connection:
            connection.execute("SELECT count(*) FROM message")
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        rest, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert rest.splitlines() == ["Stopping the broker ...", "Stopping PostgreSQL ...", "Stopped."]
    assert not left_running(children)
    assert places.find_state(directory.parent) is None


def test_a_terminal_that_is_closed_stops_all_of_it_though_nobody_can_be_told(directory: Path, free_port: int) -> None:
    terminal, inside = pty.openpty()
    broker = [sys.executable, str(_STAND_IN)]
    process = subprocess.Popen(
        [sys.executable, "-c", f"{_HEEDS_SIGHUP}{_PROGRAM}", str(directory), str(free_port), *broker],
        stdout=inside,
        stderr=inside,
    )
    children: list[psutil.Process] = []
    try:
        os.close(inside)
        with os.fdopen(terminal) as screen:
            assert any(line.startswith("Ctrl-C stops it") for line in screen)
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        # From here on every attempt to print something fails.
        process.send_signal(signal.SIGHUP)
        process.wait(timeout=30)
        assert not left_running(children)
    finally:
        for child in children:
            if child.is_running():
                child.kill()
        process.kill()
        process.wait()


def test_a_second_run_continues_with_the_same_data(directory: Path, free_port: int) -> None:
    for statement, expected in (("CREATE TABLE kept AS SELECT 7 AS number", None), ("SELECT number FROM kept", (7,))):
        with up(directory, free_port) as process:
            read_until_up(process)
            state = places.find_state(directory.parent)
            assert state is not None
            with psycopg.connect(state.confdb_url) as connection:
                done = connection.execute(statement)
                assert expected is None or done.fetchone() == expected


def test_a_second_one_in_the_directory_names_the_first(directory: Path, free_port: int) -> None:
    with up(directory, free_port) as first:
        read_until_up(first)
        with up(directory, free_port) as second:
            said, _ = second.communicate(timeout=20)
        assert second.returncode == 1
        assert f"runs already with {directory} (process {first.pid})" in said


def test_a_busy_port_is_named_before_anything_is_started(directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with up(directory, port) as process:
            said, _ = process.communicate(timeout=20)
    assert process.returncode == 1
    assert said.startswith(f"127.0.0.1:{port} is in use by another program")
    assert not directory.exists()


def test_a_broker_that_ends_takes_everything_down_and_shows_its_last_words(directory: Path, free_port: int) -> None:
    with up(directory, free_port, "--fail") as process:
        said, _ = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "the broker ended with status 3" in said
    assert "cannot go on: out of luck" in said


def test_of_a_brokers_log_only_this_run_is_shown(directory: Path, free_port: int) -> None:
    directory.mkdir()
    (directory / "broker.log").write_text("what an earlier run said\n")
    with up(directory, free_port, "--fail") as process:
        said, _ = process.communicate(timeout=20)
    assert "cannot go on: out of luck" in said
    assert "earlier run" not in said


def test_a_damaged_state_file_does_not_keep_it_from_coming_up(directory: Path, free_port: int) -> None:
    directory.mkdir()
    (directory / "state.json").write_text('{"pid": 1,')
    with up(directory, free_port) as process:
        read_until_up(process)
        state = places.find_state(directory.parent)
        assert state is not None
        assert state.pid == process.pid


def test_after_a_kill_the_next_run_takes_over(directory: Path, free_port: int) -> None:
    with up(directory, free_port) as process:
        read_until_up(process)
        left = psutil.Process(process.pid).children()
        process.kill()
        process.wait()
        assert places.find_state(directory.parent) is None
        assert all(child.is_running() for child in left)
    with up(directory, free_port) as second:
        said = read_until_up(second)
        assert "Stopping the broker that an earlier run has left behind" in said
        assert not left_running(left)
