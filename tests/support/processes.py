"""Programs in processes of their own, and what is left of processes that were to end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil


def start_program(
    program: str, log_file: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Run *program*, given as its text, in a session of its own: Ctrl-C is for the tests, and they end it."""
    with log_file.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


@dataclass(slots=True)
class LoggedProcess:
    """A program that a test has started, and what it says."""

    process: subprocess.Popen[bytes]
    log_file: Path

    @property
    def log(self) -> str:
        """What it has said so far."""
        return self.log_file.read_text()

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """End it, whatever state it is in."""
        if self.process.poll() is None:
            self.kill()


def left_running(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return those that still run. One that has ended and waits for the system to take note of it does not."""
    return [process for process in processes if _is_running(process)]


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
