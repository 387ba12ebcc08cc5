"""A job of Spark's as seen from outside: a process beside the command, its log, what it tells, and its end.

It runs in a session of its own, so that Ctrl-C reaches only the command, which ends it in good order. What it tells
comes through a pipe: should the command be killed, the job finds the pipe closed, and ends as well. Where the store is,
with a password perhaps, is in the job's environment alone: everybody on the machine can read arguments.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from msgbroker.contract.errors import JobFailedError, MessageCenterError, SparkMissingError, from_wire
from msgconsole.local.places import MSGDB_VARIABLE, find_directory
from msgconsole.local.stopping import StoppedBySignals
from msgdb.embedded.log_tail import log_tail
from msgdb.embedded.signals import signals_held_back

PROGRAM: Final = (sys.executable, "-m", "spark_etl.submit")
_NEEDED: Final = ("pyspark", "pyarrow", "adbc_driver_postgresql", "google_crc32c")
# It cancels what Spark does, notes its run as failed, and stops Spark.
_END_SECONDS_MAX: Final = 15.0
_TERMINATE_SECONDS_MAX: Final = 5.0
_LOG_BYTES_KEPT: Final = 10 * 1024 * 1024

Record = Mapping[str, Any]
_ENDING: Final[Record] = {"step": "ending it in good order", "parts_done": 0, "parts": 0, "rows": 0, "of": ""}


@dataclass(frozen=True, slots=True)
class JobCommand:
    """What is to be run."""

    name: str
    """As the program knows it: `archive`, say."""
    arguments: Sequence[str]
    master: str
    """Where it runs, as Spark writes it: `local[*]`, `spark://host:7077`."""
    msgdb_url: str | None = field(repr=False)
    """Of the store; None: it reads the archive only."""
    program: Sequence[str] = field(default=PROGRAM)


def run_job(job: JobCommand, tell: Callable[[Record], None]) -> Record | None:
    """Run *job* to its end, and return its result; None: a signal ended it before it had one.

    *tell* is called with how far it is. Raises SparkMissingError where what jobs need is not installed, whatever the
    job was refused with, and JobFailedError, with the end of its log, where it said nothing.
    """
    check_installed()
    log = _JobLog.of(job.name)
    process: _JobProcess | None = None
    is_stopped = True
    told: Record = {}
    with ExitStack() as stack:
        with StoppedBySignals():
            with signals_held_back():
                process = _JobProcess(job, log.path)
                stack.callback(process.close)
            told = process.listen(tell)
            is_stopped = False
        if process is None:
            return None
        if is_stopped:
            tell(_ENDING)
            process.end()
            # It may have had its result by then.
            told = process.listen(lambda _: None)
        status = process.wait()
    if not told and not is_stopped:
        raise JobFailedError(f"{_ended(status)} without a word{log.tail()}")
    if "error" in told:
        raise _refused(told["error"], log)
    log.forget()
    return told or None


def check_installed() -> None:
    """Raise SparkMissingError where what jobs need is not installed."""
    if any(find_spec(name) is None for name in _NEEDED):
        raise SparkMissingError


class _JobProcess:
    """The job's process. It runs from the moment it is made: hold signals back until it is noted where it is ended."""

    def __init__(self, job: JobCommand, log_file: Path) -> None:
        reading, writing = os.pipe()
        url = {} if job.msgdb_url is None else {MSGDB_VARIABLE: job.msgdb_url}
        try:
            with log_file.open("ab") as log:
                self._process = subprocess.Popen(
                    [*job.program, "--tell-to", str(writing), "--master", job.master, job.name, *job.arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **url},
                    pass_fds=(writing,),
                    start_new_session=True,
                )
        except BaseException as error:
            os.close(reading)
            if isinstance(error, OSError):
                raise JobFailedError(f"it cannot be started: {error.strerror}") from error
            raise
        finally:
            # The other end is the job's alone: it is closed when the job has ended.
            os.close(writing)
        self._lines = os.fdopen(reading, "rb")

    def listen(self, tell: Callable[[Record], None]) -> Record:
        """Hand on how far it is, and return what else it tells, once it has ended; nothing if it has died."""
        told: Record = {}
        for line in self._lines:
            record = json.loads(line)
            if "progress" in record:
                tell(record["progress"])
            else:
                told = record
        return told

    def wait(self) -> int:
        """Return its exit status."""
        return self._process.wait()

    def close(self) -> None:
        """End it, if it runs; nobody listens any more."""
        self.end()
        self._lines.close()

    def end(self) -> None:
        """Let it end in good order; end it the hard way, with what it has started, if that takes too long."""
        for number, seconds_max in ((signal.SIGINT, _END_SECONDS_MAX), (signal.SIGTERM, _TERMINATE_SECONDS_MAX)):
            if self._process.poll() is not None:
                return
            self._process.send_signal(number)
            try:
                self._process.wait(seconds_max)
            except subprocess.TimeoutExpired:
                continue
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@dataclass(frozen=True, slots=True)
class _JobLog:
    """Where a job's output goes: Spark has much to say that is of no use unless something fails."""

    path: Path
    first_byte: int
    is_temporary: bool

    @classmethod
    def of(cls, name: str) -> _JobLog:
        """Return the log in the directory of the running `msgcenter up`, or a new temporary file."""
        directory = find_directory()
        if directory is None:
            number, path = tempfile.mkstemp(prefix=f"msgcenter-etl-{name}-", suffix=".log")
            os.close(number)
            return cls(Path(path), 0, is_temporary=True)
        kept = directory / f"etl-{name}.log"
        if kept.exists() and kept.stat().st_size > _LOG_BYTES_KEPT:
            kept.replace(kept.with_suffix(".log.1"))
        return cls(kept, kept.stat().st_size if kept.exists() else 0, is_temporary=False)

    def tail(self) -> str:
        """Return what the job has said last, with the log's name; or the name alone."""
        return log_tail(self.path, self.first_byte) or f"; its log is {self.path}"

    def forget(self) -> None:
        """Remove it, if it was made for this job alone: nothing in it is of use."""
        if self.is_temporary:
            self.path.unlink()


def _refused(error: Record, log: _JobLog) -> MessageCenterError:
    if error["reason"] == JobFailedError.reason:
        return from_wire(error["reason"], "", f"{error['message']}; its log is {log.path}", {})
    log.forget()
    return from_wire(error["reason"], "", error["message"], {})


def _ended(status: int) -> str:
    return f"it was ended by signal {-status}" if status < 0 else f"it ended with status {status}"
