"""PostgreSQL's main process as its pid file tells: is it there, is it ready, and how to be rid of it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from msgbroker.contract.errors import EmbeddedPostgresError
from msgdb.embedded.layout import Layout
from msgdb.embedded.log_tail import log_tail

_POLL_SECONDS: Final = 0.02
_FAST_STOP_SECONDS_MAX: Final = 30.0
_IMMEDIATE_STOP_SECONDS_MAX: Final = 5.0
_ORPHANS_SECONDS_MAX: Final = 15.0
_STATUS_LINE: Final = 7


@dataclass(frozen=True, slots=True)
class PidFile:
    """What `postmaster.pid` says of a server: its process id, and whether it takes connections."""

    pid: int
    is_ready: bool


def read_pid_file(data: Path) -> PidFile | None:
    """Return what the pid file in *data* says, None where there is none (or it is being written)."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return None
    if not lines or not lines[0].isdigit():
        return None
    return PidFile(int(lines[0]), len(lines) > _STATUS_LINE and lines[_STATUS_LINE].strip() == "ready")


def take_over(layout: Layout) -> None:
    """Clear away what a previous run left in the directory: a server without its parent, or a stale pid file.

    The caller holds the directory's lock, so whatever runs there is nobody's.
    """
    found = read_pid_file(layout.data)
    if found is None:
        return
    postmaster = _process_in(layout.data, found.pid)
    if postmaster is not None:
        stop(postmaster)
    # Children of a killed server notice by themselves; a new one refuses to start until they are gone.
    if not wait_until(lambda: not processes_in(layout.data), _ORPHANS_SECONDS_MAX):
        pids = ", ".join(str(process.pid) for process in processes_in(layout.data))
        message = f"processes of a previous PostgreSQL still use {layout.data}: end them first ({pids})"
        raise EmbeddedPostgresError(message)
    # PostgreSQL would take a recycled process id in it for a living server.
    (layout.data / "postmaster.pid").unlink(missing_ok=True)


def stop(postmaster: psutil.Process) -> None:
    """Stop the server: at once for its clients, cleanly for its data; the hard way if that takes too long."""
    for number, seconds_max in (
        (signal.SIGINT, _FAST_STOP_SECONDS_MAX),
        (signal.SIGQUIT, _IMMEDIATE_STOP_SECONDS_MAX),
        (signal.SIGKILL, _IMMEDIATE_STOP_SECONDS_MAX),
    ):
        try:
            postmaster.send_signal(number)
            postmaster.wait(seconds_max)
        except psutil.NoSuchProcess:
            return
        except psutil.TimeoutExpired:
            continue
        return
    message = f"PostgreSQL (process {postmaster.pid}) cannot be stopped"
    raise EmbeddedPostgresError(message)


def kill(layout: Layout, postmaster: psutil.Process) -> None:
    """End the server and its children as a power cut would."""
    for process in (postmaster, *postmaster.children(recursive=True)):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    postmaster.wait(_IMMEDIATE_STOP_SECONDS_MAX)
    wait_until(lambda: not processes_in(layout.data), _ORPHANS_SECONDS_MAX)


def wait_until_ready(layout: Layout, pid: int, is_alive: Callable[[], bool], seconds_max: float) -> None:
    """Wait until server *pid* takes connections, or raise EmbeddedPostgresError."""

    def is_ready() -> bool:
        found = read_pid_file(layout.data)
        return found == PidFile(pid, is_ready=True) or not is_alive()

    if not wait_until(is_ready, seconds_max):
        message = f"PostgreSQL in {layout.root} was not ready within {seconds_max:g} s{log_tail(layout.log)}"
        raise EmbeddedPostgresError(message)
    if not is_alive():
        message = f"PostgreSQL in {layout.root} did not start{log_tail(layout.log)}"
        raise EmbeddedPostgresError(message)


def wait_until(condition: Callable[[], bool], seconds_max: float) -> bool:
    """Return whether *condition* came true in time."""
    deadline = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def processes_in(data: Path) -> list[psutil.Process]:
    """Return the processes of a server that works in *data* (it is their working directory)."""
    return [process for process in psutil.process_iter() if _works_in(data, process)]


def _process_in(data: Path, pid: int) -> psutil.Process | None:
    try:
        process = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None
    return process if _works_in(data, process) else None


def _works_in(data: Path, process: psutil.Process) -> bool:
    try:
        return process.name() == "postgres" and process.cwd() == str(data)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        # AccessDenied: another user's process, which is none of ours.
        return False
