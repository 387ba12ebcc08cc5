"""A broker's helper process: started when it is first needed, asked one thing at a time, started again when it dies.

It can neither end nor stall the broker: what it is asked is waited for only so long, and whatever happens to it comes
out of `ask` as HelperDiedError.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

import orjson
import structlog

from msgbroker.server.deliver.expressions.helper import OUT_OF_MEMORY
from msgbroker.server.deliver.expressions.helper_frames import (
    HEAD,
    Answer,
    BadFrameError,
    HelperBounds,
    Request,
    length_of,
)

log = structlog.get_logger(__name__)

_PROGRAM: Final = "msgbroker.server.deliver.expressions.helper"
_EXIT_SECONDS_MAX: Final = 1.0
"""How long the helper process may take to be gone once it was killed."""


class HelperDiedError(Exception):
    """The helper process ended, or was ended, without an answer."""


@dataclass(frozen=True, slots=True)
class HelperConfig:
    """What the helper process may take: time, memory, patience."""

    bounds: HelperBounds = field(default_factory=HelperBounds)
    start_seconds_max: float = 30.0
    answer_seconds_max: float = 60.0
    """An answer is waited for so long by the clock on the wall; CPU time is bounded closer."""
    restart_seconds_min: float = 0.1
    restart_seconds_max: float = 30.0
    idle_seconds_max: float = 300.0
    """After how long without a request the helper process is ended."""


class HelperProcess:
    """The process, and the way to ask it. One task does so: it is not asked twice at a time."""

    def __init__(self, config: HelperConfig | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self.config = config or HelperConfig()
        self.problem = ""
        """Why the helper process does not run, where it should."""
        self._now = now
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        """Our end of the pair, from the start of the process until the reader and the writer have taken it over."""
        self._lifeline: BinaryIO | None = None
        """The end of a pipe that keeps the helper alive: when it closes, however that comes, the system ends the
        helper."""
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._is_closed = False
        self._start_at = 0.0
        self._restart_seconds = self.config.restart_seconds_min
        self._used_at = 0.0

    @property
    def pid(self) -> int | None:
        """Its process id, while it runs."""
        return None if self._process is None else self._process.pid

    async def is_ready(self) -> bool:
        """Start it if it does not run; return whether it does. After a failure it is left alone for a while."""
        if self._writer is not None:
            return True
        if self._now() < self._start_at or self._is_closed:
            return False
        try:
            await self._start()
        except (OSError, EOFError, TimeoutError, BadFrameError) as error:
            await self._bury(f"it cannot be started: {type(error).__name__}: {error}")
            return False
        log.info("expression_helper.started", pid=self.pid)
        return True

    async def ask(self, request: Request) -> Answer:
        """Return the answer to *request*. Raises HelperDiedError, and then it does not run any more."""
        assert self._reader is not None
        assert self._writer is not None
        self._used_at = self._now()
        try:
            async with asyncio.timeout(self.config.answer_seconds_max):
                self._writer.write(request.encode())
                await self._writer.drain()
                answer = Answer.decode(await _content(self._reader), request)
        except TimeoutError as error:
            raise HelperDiedError(await self._bury(f"no answer within {self.config.answer_seconds_max:g} s")) from error
        except (OSError, EOFError) as error:
            raise HelperDiedError(await self._bury("the helper process ended without an answer")) from error
        except BadFrameError as error:
            raise HelperDiedError(await self._bury(str(error))) from error
        self.problem = ""
        self._restart_seconds = self.config.restart_seconds_min
        return answer

    async def rest(self) -> None:
        """End it if it has had nothing to do for long; it is started again when it is needed."""
        if self._writer is not None and self._now() - self._used_at > self.config.idle_seconds_max:
            log.info("expression_helper.ended", pid=self.pid)
            self._hang_up()
            process, self._process = self._process, None
            if process is not None:
                await asyncio.to_thread(_end, process)

    def close(self) -> None:
        """End the helper process for good."""
        self._is_closed = True
        self._hang_up()
        self._kill()

    async def _start(self) -> None:
        self._used_at = self._now()
        await asyncio.to_thread(self._spawn)
        ours, self._socket = self._socket, None
        if ours is None:
            raise OSError("it is not needed any more")
        async with asyncio.timeout(self.config.start_seconds_max):
            reader, self._writer = await asyncio.open_connection(sock=ours)
            await _content(reader)
        self._reader = reader

    def _spawn(self) -> None:
        """Start the process. In a thread: starting takes its time."""
        bounds = orjson.dumps(dataclasses.asdict(self.config.bounds)).decode()
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(0.0)
        end_with, lifeline = os.pipe()
        self._lifeline = os.fdopen(lifeline, "wb", 0)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _PROGRAM, bounds, str(end_with)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                # It has no business with databases: no passwords in its environment.
                env={"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(_import_path())},
                cwd="/",
                pass_fds=(end_with,),
                # Ctrl-C is for the broker.
                start_new_session=True,
            )
        finally:
            theirs.close()
            os.close(end_with)
        if self._is_closed:
            # Meanwhile.
            self._hang_up()
            self._kill()

    async def _bury(self, problem: str) -> str:
        """End what is left of it, and say why; the next one is started after a pause, longer each time."""
        self._hang_up()
        process, self._process = self._process, None
        if process is not None:
            status = await asyncio.to_thread(_reap, process)
            problem = _cause(status, self.config.bounds) or problem
        self.problem = problem
        self._start_at = self._now() + self._restart_seconds
        log.warning("expression_helper.died", problem=problem, restart_seconds=self._restart_seconds)
        self._restart_seconds = min(2 * self._restart_seconds, self.config.restart_seconds_max)
        return problem

    def _hang_up(self) -> None:
        for end in (self._writer, self._socket, self._lifeline):
            if end is not None:
                end.close()
        self._reader = self._writer = self._socket = self._lifeline = None

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            _end(process)


async def _content(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(length_of(await reader.readexactly(HEAD.size)))


def _import_path() -> list[str]:
    """Return where this process finds its modules: the helper is of the same version."""
    return [str(Path(path).absolute()) for path in sys.path]


def _reap(process: subprocess.Popen[bytes]) -> int:
    try:
        # Its socket is closed: where it died by itself, that is how it ended.
        return process.wait(_EXIT_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        _end(process)
        return 0


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    # One that even this does not end hangs in the system: nobody waits for that.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_EXIT_SECONDS_MAX)


def _cause(status: int, bounds: HelperBounds) -> str:
    if status == -signal.SIGIO:
        # It is this broker that hung up.
        return ""
    if status == -signal.SIGPROF:
        return f"an evaluation takes more than {bounds.cpu_seconds_max:g} s"
    if status == OUT_OF_MEMORY:
        return f"an evaluation takes more than {bounds.memory_bytes_max // 2**20} MiB of memory"
    if status < 0:
        return f"the helper process was ended by {signal.Signals(-status).name}"
    return f"the helper process ended with status {status}" if status else ""
