"""Ending a program that waits in the foreground by a signal, in good order."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Final

_STOPPING_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequested(BaseException):
    """Somebody wants us to stop; breaks off whatever is going on, start-up included."""


class StoppedBySignals:
    """In its block the first signal that asks to stop raises StopRequested, which ends the block and no more.

    What the block has entered is left, and so stopped, on the way out.
    """

    def __enter__(self) -> None:
        for number in _STOPPING_SIGNALS:
            signal.signal(number, _request_stop)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return isinstance(error, StopRequested)


def _request_stop(_number: int, _frame: FrameType | None) -> None:
    # Once: a second Ctrl-C must not break off the stopping.
    for number in _STOPPING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise StopRequested
