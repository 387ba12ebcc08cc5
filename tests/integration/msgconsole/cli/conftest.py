"""The command line as tests use it: in this process, against databases and a broker of the test's own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from msgconsole.cli.main import main
from msgconsole.local.broker_process import BROKER_COMMAND, BrokerProcess
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, read."""
        assert self.status == 0, self.err
        return json.loads(self.out)


Msgcenter = Callable[..., Outcome]


@pytest.fixture
def msgcenter(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Msgcenter:
    """Return a function that runs one command on the test's database."""
    monkeypatch.chdir(tmp_path)
    # Tables are as wide as they like, wherever tests run.
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("MSGCENTER_CONFDB_URL", database_url)
    monkeypatch.setenv("MSGCENTER_MSGDB_URL", database_url)

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["msgcenter", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exited:
            main()
        captured = capsys.readouterr()
        status = exited.value.code
        assert isinstance(status, int)
        return Outcome(status, captured.out, captured.err)

    return run


@pytest.fixture
def running_broker(
    msgcenter: Msgcenter, free_port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[str]:
    """Run a broker on the test's database and make it the commands' broker; return its address."""
    address = f"127.0.0.1:{free_port}"
    environment = {**os.environ, "MSGCENTER_CLIENT_REGISTRATION": "true"}
    process = BrokerProcess([*BROKER_COMMAND, "--listen", address], tmp_path / "broker.log", environment)
    try:
        process.wait_until_ready(address)
        monkeypatch.setenv("MSGCENTER_BROKER", address)
        yield address
    finally:
        process.stop()


@pytest.fixture
def topic(msgcenter: Msgcenter, database_url: str) -> str:
    """Register a topic and a group; return the database's URL."""
    for arguments in (("topic", "create", "TP_TRADE"), ("group", "create", "SG_POINTS")):
        assert msgcenter(*arguments, "--no-wait").status == 0
    return database_url


Do = Callable[[Callable[[Connection], Awaitable[Any]]], Any]


@pytest.fixture
def do(database_url: str) -> Do:
    """Return a function that does something in the test's store, and returns what came of it."""

    def run(act: Callable[[Connection], Awaitable[Any]]) -> Any:
        async def inner() -> Any:
            async with MessageStore.open(database_url, pool_size=1) as store, store.connection() as connection:
                return await act(connection)

        return asyncio.run(inner())

    return run
