"""The center that is measured: an embedded PostgreSQL with fsync on, and a broker that can be started again."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from msgconsole.local.broker_process import BROKER_COMMAND, BrokerProcess
from msgconsole.local.databases import upgrade
from msgdb.embedded import EmbeddedPostgres

_NO_SETTINGS: Final[Mapping[str, str]] = {}


class BenchCenter:
    """Runs PostgreSQL and a broker while it is entered, a usual one unless *command* starts another.

    *settings* are the broker's, by their names in lower case; everything else is at its default, whatever the
    environment says.
    """

    def __init__(
        self,
        directory: Path,
        say: Callable[[str], None],
        settings: Mapping[str, str] = _NO_SETTINGS,
        command: Sequence[str] = BROKER_COMMAND,
    ) -> None:
        self._command = command
        self._directory = directory
        self._say = say
        self.settings = dict(settings)
        self._stack = ExitStack()
        self.postgres = EmbeddedPostgres(directory / "postgres")
        self._broker: BrokerProcess | None = None
        self._workers = 0
        self.address = f"127.0.0.1:{_free_port()}"
        self.confdb_url = self.msgdb_url = ""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            # What was started is stopped even if the next step fails or is interrupted.
            self._say("Starting PostgreSQL ...")
            stack.enter_context(self.postgres)
            self.confdb_url, self.msgdb_url = (self.postgres.create_database(name) for name in ("confdb", "msgdb"))
            upgrade(self.confdb_url, self.msgdb_url)
            stack.callback(self.stop_broker)
            self.start_broker()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def broker(self) -> BrokerProcess:
        """The running broker; its first process where it has workers."""
        assert self._broker is not None, "no broker runs"
        return self._broker

    @property
    def pids(self) -> dict[str, tuple[int, ...]]:
        """The process ids of PostgreSQL and the broker, by what they are."""
        return {"postgres": (self.postgres.pid,), "broker": (self.broker.pid,)}

    def use_workers(self, workers: int) -> None:
        """See to it that the broker has so many processes; one with another number is stopped."""
        if workers != self._workers:
            self.stop_broker()
            self.start_broker(workers)

    def start_broker(self, workers: int = 1) -> float:
        """Start a broker, return the seconds until it serves."""
        self._say(f"Starting a broker with {workers} worker{'s' if workers > 1 else ''} ...")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MSGCENTER_")}
        given = {"confdb_url": self.confdb_url, "msgdb_url": self.msgdb_url, **self.settings}
        environment = {**inherited, **{f"MSGCENTER_{name.upper()}": value for name, value in given.items()}}
        command = [*self._command, "--listen", self.address, "--workers", str(workers)]
        started_at = time.perf_counter()
        self._broker = BrokerProcess(command, self._directory / "broker.log", environment)
        self._workers = workers
        self._broker.wait_until_ready(self.address)
        return time.perf_counter() - started_at

    def stop_broker(self) -> None:
        """Let the broker drain and end."""
        if self._broker is not None:
            self._broker.stop()
            self._broker, self._workers = None, 0

    def check(self) -> None:
        """Raise if something has ended that should run."""
        self.postgres.check()
        self.broker.check()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
