"""What commands believe of the file that `msgcenter up` writes, and what they say of one that they cannot use."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from msgbroker.contract.errors import NoDatabaseError
from msgconsole.local import places
from msgconsole.local.state_file import State, read_state

URL = "postgresql://postgres@/confdb?host=/run/x"
STATE = State(
    os.getpid(), places.started_ticks(os.getpid()) or 0, "127.0.0.1:7500", 1, 1, confdb_url=URL, msgdb_url=URL
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work below a directory of `msgcenter up`; return that."""
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    directory = tmp_path / places.DIRECTORY
    directory.mkdir()
    return directory


def assert_not_used(directory: Path, why: str) -> None:
    assert read_state(directory) is None
    assert places.broker_address(None, {}) == places.DEFAULT_BROKER
    with pytest.raises(NoDatabaseError) as refused:
        places.confdb_url({})
    assert f"{directory}/state.json {why}" in refused.value.message
    assert refused.value.message.endswith(", or set MSGCENTER_CONFDB_URL")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"pid": 1,',
        b'{"pid": 1, "of_a_newer_version": 2}',
        b"[]",
        b"\xff",
        b"[" * 20_000,
        json.dumps(asdict(STATE) | {"broker": None}).encode(),
        json.dumps(asdict(STATE) | {"pid": "1"}).encode(),
    ],
    ids=["empty", "half", "of another version", "list", "not text", "nested", "no broker", "text for a number"],
)
def test_what_cannot_be_read_is_named_with_the_way_on(here: Path, content: bytes) -> None:
    (here / "state.json").write_bytes(content)
    assert_not_used(here, "is damaged, or of another version of msgcenter; start `msgcenter up` there again")


def test_what_a_newer_version_says_on_top_is_left_aside(here: Path) -> None:
    (here / "state.json").write_text(json.dumps(asdict(STATE) | {"of_a_newer_version": 2}))
    assert places.find_state() == STATE


def test_what_belongs_to_somebody_else_is_not_believed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    STATE.write(here)
    if os.geteuid() == 0:
        os.chown(here / "state.json", 65_534, 65_534)
    else:
        somebody_else = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: somebody_else)
    assert_not_used(here, "belongs to another user (id ")


def test_what_is_no_file_is_neither_followed_nor_waited_for(here: Path) -> None:
    os.mkfifo(here / "state.json")
    assert_not_used(here, "is damaged")
    (here / "state.json").unlink()
    STATE.write(here)
    (here / "state.json").rename(here / "elsewhere.json")
    (here / "state.json").symlink_to(here / "elsewhere.json")
    assert_not_used(here, "cannot be read (Too many levels of symbolic links)")


def test_a_write_that_is_broken_off_leaves_what_was_there(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    STATE.write(here)

    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space left"):
            replace(STATE, broker="127.0.0.1:7600").write(here)
    assert read_state(here) == STATE
    replace(STATE, broker="127.0.0.1:7700").write(here)
    assert [path.name for path in here.iterdir()] == ["state.json"]
    assert places.broker_address(None, {}) == "127.0.0.1:7700"


def test_in_a_directory_that_was_removed_nothing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert places.broker_address(None, {}) == places.DEFAULT_BROKER
    with pytest.raises(NoDatabaseError, match="start `msgcenter up` in this directory or above it"):
        places.confdb_url({})
