"""Ending a program that waits in the foreground by a signal, in good order."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from msgdb.embedded.signals import STOPPING_SIGNALS


class StopRequested(BaseException):
    """Somebody wants us to stop: breaks off whatever is going on, start-up included. `StoppedBySignals` catches it."""


class StoppedBySignals:
    """In its block the first signal that asks to stop raises StopRequested, which ends the block and no more.

    What the block has entered is left, and so stopped, on the way out.
    """

    def __init__(self) -> None:
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> None:
        for number in STOPPING_SIGNALS:
            # Started by nohup, it outlives its terminal.
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, _request_stop)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, StopRequested):
            # Signals stay ignored: little is left to do.
            return True
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        return False


@contextmanager
def signals_ignored() -> Iterator[None]:
    """Take no notice of signals that ask to stop: what is in the block stops already, and must not be broken off."""
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in STOPPING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _request_stop(_number: int, _frame: FrameType | None) -> None:
    # Once: a second Ctrl-C must not break off the stopping.
    for number in STOPPING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise StopRequested
