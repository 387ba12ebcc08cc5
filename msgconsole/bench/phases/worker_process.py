"""A worker process as the driver sees it: what it has said, and what it is told."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections import deque
from types import TracebackType
from typing import IO, Any, Final, Self

from msgbroker.contract.errors import BenchFailedError

_READY_SECONDS_MAX: Final = 60.0
_END_SECONDS_MAX: Final = 15.0
_HISTORY_MAX: Final = 100_000


class WorkerProcess:
    """Runs a worker while it is entered; a thread reads what it says."""

    def __init__(self, role: str, task: dict[str, Any], module: str = "msgconsole.bench.workers") -> None:
        self._role = role
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps({**task, "role": role})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._changed = threading.Condition()
        self._is_ready = False
        self._has_ended = False
        self._result: dict[str, Any] | None = None
        self.history: deque[tuple[float, dict[str, Any]]] = deque(maxlen=_HISTORY_MAX)
        """What the worker has said of late: when, and how far it was then."""
        self._reader = threading.Thread(target=self._read, name=f"bench-{role}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The broker's process id."""
        return self._process.pid

    @property
    def latest(self) -> dict[str, Any]:
        """How far it was when it last said so."""
        return self.history[-1][1] if self.history else {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            # Where something failed, nobody waits for it to end well.
            self._process.wait(_END_SECONDS_MAX if kind is None else 0.5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()

    def wait_until_ready(self) -> None:
        """Wait until the worker can begin, or raise BenchFailedError."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_ready or self._has_ended, _READY_SECONDS_MAX)
        self.check()
        if not self._is_ready:
            raise BenchFailedError(f"the {self._role} worker was not ready within {_READY_SECONDS_MAX:g} s")

    def tell(self) -> None:
        """Give it the order it waits for: begin, stop, or end."""
        stdin: IO[str] | None = self._process.stdin
        assert stdin is not None
        try:
            stdin.write("{}\n")
            stdin.flush()
        except BrokenPipeError as error:
            raise BenchFailedError(f"the {self._role} worker is gone") from error

    def result(self, seconds_max: float) -> dict[str, Any]:
        """Wait for the worker's results and return them."""
        deadline = time.monotonic() + seconds_max
        with self._changed:
            self._changed.wait_for(lambda: self._result or self._has_ended, max(0.0, deadline - time.monotonic()))
        self.check()
        if self._result is None:
            raise BenchFailedError(f"the {self._role} worker was not done within {seconds_max:g} s: {self.latest}")
        return self._result

    def check(self) -> None:
        """Raise if it has ended without a result."""
        if self._has_ended and self._result is None:
            raise BenchFailedError(f"the {self._role} worker ended with status {self._process.wait()}")

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._hear(json.loads(line))
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def _hear(self, said: dict[str, Any]) -> None:
        if "progress" in said:
            self.history.append((said["at"], said["progress"]))
            return
        with self._changed:
            self._is_ready = self._is_ready or "ready" in said
            self._result = said.get("result", self._result)
            self._changed.notify_all()
