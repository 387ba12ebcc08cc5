"""Where commands look for databases and brokers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from msgbroker.contract.errors import ArchivePlaceError, InvalidSettingError, NoDatabaseError
from msgconsole.local import places

URL = "postgresql://postgres@/confdb?host=/run/x"


def write_state(directory: Path, pid_started: int) -> None:
    directory.mkdir(exist_ok=True)
    places.State(os.getpid(), pid_started, "127.0.0.1:7500", 1, 1, URL, URL).write(directory)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / places.DIRECTORY


def test_an_option_wins_over_the_environment_and_that_over_a_running_up(here: Path) -> None:
    assert places.broker_address(None, {}) == places.DEFAULT_BROKER
    write_state(here, places.started_ticks(os.getpid()) or 0)
    assert places.broker_address(None, {}) == "127.0.0.1:7500"
    environment = {"MSGCENTER_BROKER": "b:1"}
    assert places.broker_address(None, environment) == "b:1"
    assert places.broker_address("c:1", environment) == "c:1"
    assert places.broker_address("c:1, d:2", environment) == "c:1,d:2"


def test_the_archive_lies_where_it_is_said_or_else_beside_a_running_up(here: Path) -> None:
    with pytest.raises(ArchivePlaceError, match="give --place, or set MSGCENTER_ARCHIVE"):
        places.archive_place(None, {})
    write_state(here, places.started_ticks(os.getpid()) or 0)
    assert places.archive_place(None, {}) == str(here / "archive")
    environment = {"MSGCENTER_ARCHIVE": "s3://bucket/archive"}
    assert places.archive_place(None, environment) == "s3://bucket/archive"
    assert places.archive_place("archive", environment) == "archive"


def test_what_a_dead_up_left_behind_is_ignored(here: Path) -> None:
    # The process id has gone to another process, which was started at another time.
    write_state(here, 1)
    assert places.find_state() is None
    with pytest.raises(NoDatabaseError, match=r"that served \S+/.msgcenter has died; start it again"):
        places.confdb_url({})


def test_a_dead_process_that_nobody_has_waited_for_does_not_run() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert places.started_ticks(process.pid) is not None
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert places.started_ticks(process.pid) is None


def test_a_url_of_something_else_is_refused_by_variable() -> None:
    with pytest.raises(InvalidSettingError, match="MSGCENTER_MSGDB_URL is not a URL like postgresql://"):
        places.msgdb_url({"MSGCENTER_MSGDB_URL": "mysql://x"})


@pytest.mark.parametrize(
    "address",
    [
        "localhost", "localhost:", ":7400", "h:http", "h:0", "h:70000", "h:" + "9" * 5_000, "h:²", "h:\uff17400", "::1",
        "[::1:7400", "h\udcff:7400", "h\n:7400",
    ],
    ids=lambda address: ascii(address)[:20],
)  # fmt: skip
def test_an_address_without_a_port_is_refused_by_where_it_was_given(address: str) -> None:
    with pytest.raises(InvalidSettingError, match=r"--broker is .*; host:port is wanted"):
        places.broker_address(address, {})
    with pytest.raises(InvalidSettingError, match=r"MSGCENTER_BROKER is .*; host:port is wanted"):
        places.broker_address(None, {"MSGCENTER_BROKER": address})


@pytest.mark.parametrize(
    "url, shown",
    [
        ("postgresql://me:s3cret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("postgresql://me@host/db?password=s3cret&x=1", "postgresql://me@host/db?password=***&x=1"),
        ("postgresql://me@host/db?x=1&sslpassword=s3cret", "postgresql://me@host/db?x=1&sslpassword=***"),
        ("postgresql://me:s?3#c[r@e:t@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:s3cret@[::1/db", "postgresql://me:***@[::1/db"),
        ("postgresql://me:s3cret@[::1],[::2]:5433/db", "postgresql://me:***@[::1],[::2]:5433/db"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert places.without_password(url) == shown


@pytest.mark.parametrize(
    "url, problem",
    [
        ("postgresql://me@[::1/db", "IPv6 addresses in brackets"),
        ("postgresql://me@host/db?nosuch=1", 'invalid URI query parameter: "nosuch"'),
        ("postgresql://me@host/d%zz", "special characters are written as %40"),
        ("postgresql://m\udcff@host/db", "cannot be read"),
    ],
    ids=ascii,
)
def test_a_url_that_cannot_be_read_is_refused_by_variable(url: str, problem: str) -> None:
    with pytest.raises(InvalidSettingError) as refused:
        places.confdb_url({"MSGCENTER_CONFDB_URL": url})
    assert refused.value.message.startswith("MSGCENTER_CONFDB_URL cannot be read")
    assert problem in refused.value.message


@pytest.mark.parametrize("url", ["postgresql://me:s3%cret@host/db", "postgresql://me:s3cret@[::1/db"])
def test_a_url_that_cannot_be_read_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(InvalidSettingError) as refused:
        places.confdb_url({"MSGCENTER_CONFDB_URL": url})
    assert "s3" not in refused.value.message


@pytest.mark.parametrize("url", ["postgresql://", "postgres://h1:1,h2:2/db", "postgresql:///db?service=shop"])
def test_whatever_libpq_can_read_is_taken(url: str) -> None:
    assert places.msgdb_url({"MSGCENTER_MSGDB_URL": url}) == url
