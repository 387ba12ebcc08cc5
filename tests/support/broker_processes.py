"""Brokers in processes of their own, to be killed and frozen."""

from __future__ import annotations

import os
import random
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.support.eventually import eventually_blocking
from tests.support.processes import LoggedProcess, start_program

_READY = "READY "
_PROGRAM = """
import asyncio, sys
import uvloop
from msgbroker.server.app import configure_logging, run_broker
from msgbroker.server.settings import BrokerSettings

settings = BrokerSettings.load()
configure_logging(settings)
with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(run_broker(settings, on_ready=lambda address: print("READY " + address, flush=True)))
"""


def port_to_come_back_to() -> int:
    """Return a free port below those the system gives to clients: one of these may have it before a broker is back."""
    while True:
        port = random.randint(15_000, 30_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


@dataclass(slots=True)
class BrokerProcess(LoggedProcess):
    """One broker: what `msgcenter broker` runs, without its command line."""

    _address: str = ""

    @classmethod
    def start(cls, url: str, log_file: Path, settings: Mapping[str, Any]) -> Self:
        """Start a broker on a free port; `address` waits until it is ready."""
        given = {
            "msgdb_url": url,
            "confdb_url": url,
            "listen": f"127.0.0.1:{port_to_come_back_to()}",
            "lease_seconds": 3,
            "client_registration": True,
            **settings,
        }
        variables = {f"MSGCENTER_{name.upper()}": str(value) for name, value in given.items()}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MSGCENTER_")}
        # What another broker of the test has said there is not this one's.
        log_file.write_bytes(b"")
        return cls(start_program(_PROGRAM, log_file, environment={**inherited, **variables}), log_file)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def address(self) -> str:
        """Where it serves; waits until it does."""
        if not self._address:
            self._address = eventually_blocking(self._find_address, 30, what=f"ready: {self.log_file}")
        return self._address

    def terminate(self) -> None:
        """Ask it to end."""
        self.process.terminate()

    def freeze(self) -> None:
        """Stop it where it is; it has stopped when this returns."""
        self.process.send_signal(signal.SIGSTOP)
        # On a busy machine its threads go on for a moment; the last of them that stops is what is heard of here.
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def _find_address(self) -> str:
        assert self.process.poll() is None, f"the broker has ended:\n{self.log}"
        lines = [line for line in self.log.splitlines() if line.startswith(_READY)]
        return lines[0].removeprefix(_READY) if lines else ""
