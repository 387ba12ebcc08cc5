"""Several broker processes on one port: started together, and ended together."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Final

from msgbroker.contract.errors import BrokerFailedError
from msgconsole.local.stopping import signals_ignored
from msgdb.embedded.signals import signals_held_back

# A broker drains within 10 s; what is not gone then is frozen.
_STOP_SECONDS_MAX: Final = 12.0


class WorkerPool:
    """Runs *count* processes of *command*, each in a session of its own so that Ctrl-C does not reach it.

    None is started again: when one ends, `check` raises, and whoever runs us starts all of us anew.
    """

    def __init__(self, command: Sequence[str], count: int, environment: Mapping[str, str]) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            with signals_held_back():
                for _ in range(count):
                    self._start(command, environment)
        except BaseException:
            # Told to stop, or not all of them can be started: nobody else knows of those that run.
            self.stop()
            raise

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers."""
        return [process.pid for process in self._processes]

    def check(self) -> None:
        """Raise BrokerFailedError if a worker has ended."""
        for process in self._processes:
            status = process.poll()
            if status is not None:
                message = f"worker {process.pid} ended with status {status}"
                raise BrokerFailedError(message)

    def stop(self) -> None:
        """Let all drain at the same time, and end those the hard way that take too long."""
        with signals_ignored():
            for process in self._processes:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + _STOP_SECONDS_MAX
            for process in self._processes:
                try:
                    process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def _start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        try:
            process = subprocess.Popen(
                [*command], stdin=subprocess.DEVNULL, env={**environment}, start_new_session=True
            )
        except OSError as error:
            message = f"worker {len(self._processes) + 1} cannot be started: {error.strerror}"
            raise BrokerFailedError(message) from error
        self._processes.append(process)
