"""Told to stop in the very moment in which the server was started: it does not run on by itself."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from msgdb.embedded import EmbeddedPostgres


class _InterruptedError(Exception):
    pass


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[psutil.Popen]]:
    """Return the servers that were started; right after the fork of each comes a signal that raises."""
    servers: list[psutil.Popen] = []
    popen = psutil.Popen

    def start(*args: Any, **kwargs: Any) -> psutil.Popen:
        servers.append(popen(*args, **kwargs))
        signal.raise_signal(signal.SIGTERM)
        return servers[-1]

    def interrupt(*_: object) -> None:
        raise _InterruptedError

    monkeypatch.setattr(psutil, "Popen", start)
    before = signal.signal(signal.SIGTERM, interrupt)
    yield servers
    signal.signal(signal.SIGTERM, before)
    for server in servers:
        if server.is_running():
            server.kill()


def test_a_signal_right_after_the_fork_leaves_no_server_behind(started: list[psutil.Popen], tmp_path: Path) -> None:
    with pytest.raises(_InterruptedError):
        EmbeddedPostgres(tmp_path / "postgres", settings={"fsync": "off"}).start()
    assert [server.is_running() for server in started] == [False]
