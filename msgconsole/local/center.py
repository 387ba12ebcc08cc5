"""A whole center on this machine: PostgreSQL, both schemas, one broker; started in order, stopped in reverse."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from msgbroker.contract.errors import AlreadyUpError
from msgconsole.local.broker_process import BROKER_COMMAND, BrokerProcess, check_port_is_free, stop_stranger
from msgconsole.local.databases import upgrade
from msgconsole.local.places import CONFDB_VARIABLE, MSGDB_VARIABLE
from msgconsole.local.state_file import State, read_state, remove_state, started_ticks
from msgconsole.local.stopping import signals_ignored
from msgdb.embedded import EmbeddedPostgres
from msgdb.embedded.lock import DirectoryLock
from msgdb.embedded.signals import signals_held_back

CONFDB: Final = "confdb"
MSGDB: Final = "msgdb"


@dataclass(frozen=True, slots=True)
class LocalCenterConfig:
    """Where a local center keeps its data and listens, and which databases it uses."""

    directory: Path
    """The directory with the data and the logs; made where there is none."""
    listen: str
    confdb_url: str | None = None
    msgdb_url: str | None = None
    """The message store's URL; with both URLs given, no PostgreSQL is started."""
    broker_command: Sequence[str] = BROKER_COMMAND


class LocalCenter:
    """Runs a center for as long as it is entered. *say* is told what happens, in sentences."""

    def __init__(self, config: LocalCenterConfig, say: Callable[[str], None]) -> None:
        self._config = config
        self._say = say
        self._stack = ExitStack()
        self._broker: BrokerProcess | None = None
        self._postgres: EmbeddedPostgres | None = None

    @property
    def pids(self) -> dict[str, int]:
        """The processes that it started, by what they are."""
        started = {"postgres": self._postgres, "broker": self._broker}
        return {role: process.pid for role, process in started.items() if process is not None}

    @property
    def broker_log(self) -> Path:
        """The file with what the broker logs."""
        return self._config.directory / "broker.log"

    def __enter__(self) -> Self:
        try:
            self._start(self._stack)
        except BaseException:
            # Entered as far as it got: what was started is stopped even if the next step fails or is interrupted.
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def check(self) -> None:
        """Raise if something has ended that should run."""
        if self._postgres is not None:
            self._postgres.check()
        if self._broker is not None:
            self._broker.check()

    def _start(self, stack: ExitStack) -> None:
        if not self._config.directory.exists():
            # Nobody's broker can have been left behind here: say what is in the way before making anything.
            check_port_is_free(self._config.listen)
        self._lock_directory(stack)
        self._stop_left_broker()
        check_port_is_free(self._config.listen)
        confdb_url, msgdb_url = self._databases(stack)
        upgrade(confdb_url, msgdb_url)
        environment = {**os.environ, CONFDB_VARIABLE: confdb_url, MSGDB_VARIABLE: msgdb_url}
        # It is a developer's own center: programs may register what they need.
        environment.setdefault("MSGCENTER_CLIENT_REGISTRATION", "true")
        self._say(f"Starting a broker on {self._config.listen} ...")
        command = [*self._config.broker_command, "--listen", self._config.listen]
        with signals_held_back():
            self._broker = BrokerProcess(command, self.broker_log, environment)
            stack.callback(self._broker.stop)
        stack.callback(self._say, "Stopping the broker ...")
        state = State(
            pid=os.getpid(),
            pid_started=started_ticks(os.getpid()) or 0,
            broker=self._config.listen,
            broker_pid=self._broker.pid,
            broker_pid_started=started_ticks(self._broker.pid) or 0,
            confdb_url=confdb_url,
            msgdb_url=msgdb_url,
        )
        stack.callback(remove_state, self._config.directory)
        state.write(self._config.directory)
        self._broker.wait_until_ready(self._config.listen)

    def _lock_directory(self, stack: ExitStack) -> None:
        self._config.directory.mkdir(parents=True, exist_ok=True)
        lock = DirectoryLock(self._config.directory / "up.lock")
        holder = lock.try_acquire()
        if holder is not None:
            raise AlreadyUpError(str(self._config.directory), holder)
        stack.callback(lock.release)

    def _stop_left_broker(self) -> None:
        """Stop the broker of a run that was killed: it still has the port."""
        state = read_state(self._config.directory)
        if state is not None and started_ticks(state.broker_pid) == state.broker_pid_started:
            self._say(f"Stopping the broker that an earlier run has left behind (process {state.broker_pid}) ...")
            stop_stranger(state.broker_pid)

    def _databases(self, stack: ExitStack) -> tuple[str, str]:
        confdb_url, msgdb_url = self._config.confdb_url, self._config.msgdb_url
        if confdb_url and msgdb_url:
            return confdb_url, msgdb_url
        self._say(f"Starting PostgreSQL in {self._config.directory / 'postgres'} ...")
        self._postgres = postgres = EmbeddedPostgres(self._config.directory / "postgres")
        stack.callback(postgres.stop)
        stack.callback(self._say, "Stopping PostgreSQL ...")
        postgres.start()
        return (
            confdb_url or postgres.create_database(CONFDB),
            msgdb_url or postgres.create_database(MSGDB),
        )

    def _stop(self) -> None:
        # What is started has its own entry, and goes even if nobody can be told any more (a terminal that was closed).
        with signals_ignored():
            self._stack.close()


def command_name() -> str:
    """Return what to type for `msgcenter` in this directory."""
    script = Path(sys.argv[0])
    if script.name != "msgcenter":
        return "msgcenter"
    try:
        return str(script.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(script)
