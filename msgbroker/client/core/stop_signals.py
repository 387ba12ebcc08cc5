"""SIGINT and SIGTERM while `run` waits in the main thread: the first one closes the center, a second ends the process.

Signals are the process's, and so is what is kept of them here: several centers may run at once, and all are closed.
Python calls a signal's handler in the main thread, in the middle of whatever it does: it only hands over. It is called
where something holds up the event loop, too, which asyncio's own way would not be; and what the application has asked
of asyncio stays as it is.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, NoneType
from typing import Any, Final

from msgbroker.client.values.options import check_types
from msgbroker.contract.errors import InvalidSettingError

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

Stop = Callable[[signal.Signals], None]
"""What the first signal calls; it may come in the middle of anything, so this only hands over."""


@contextmanager
def stopped_by_signals(stop: Stop, handle_signals: bool | None) -> Iterator[None]:  # noqa: FBT001 - as `run` was given it
    """Call *stop* at the first SIGINT or SIGTERM that comes in the block; put back what was there at its end.

    None: in the main thread, for the signals that the application does not handle itself. True: for both; raises
    InvalidSettingError in another thread. False: for none.
    """
    check_types({"handle_signals": handle_signals}, {"handle_signals": (bool, NoneType)})
    is_possible = threading.current_thread() is threading.main_thread()
    if handle_signals and not is_possible:
        raise InvalidSettingError(
            "handle_signals", "is True in a thread that is not the main one: Python handles signals there alone"
        )
    if handle_signals is False or not is_possible:
        yield
        return
    _PROCESS.take(stop, are_all_wanted=handle_signals is True)
    try:
        yield
    finally:
        _PROCESS.give_back(stop)


class _ProcessSignals:
    """Who is to be stopped in this process, and who handled the signals before."""

    def __init__(self) -> None:
        self._stops: list[Stop] = []
        self._before: dict[signal.Signals, Any] = {}

    def take(self, stop: Stop, *, are_all_wanted: bool) -> None:
        """Let the first signal call *stop*, for the signals that the application does not handle itself, or for all."""
        self._stops.append(stop)
        for number in STOP_SIGNALS:
            before = signal.getsignal(number)
            # One that was not installed from Python, which shows as None, could not be put back.
            if number not in self._before and (_is_pythons(before) or (are_all_wanted and before is not None)):
                self._before[number] = before
                signal.signal(number, self._stop_all)

    def give_back(self, stop: Stop) -> None:
        """Call *stop* no more. The last one puts back what was there before."""
        if stop in self._stops:
            self._stops.remove(stop)
        if not self._stops:
            self._put_back()

    def forget(self) -> None:
        """Put back what was there: this is another process, and what runs is in its parent."""
        self._stops.clear()
        self._put_back()

    def _put_back(self) -> None:
        for number, before in self._before.items():
            now = signal.getsignal(number)
            # Not over what the application has installed meanwhile.
            if now == self._stop_all or now == _after_first(before):
                signal.signal(number, before)
        self._before.clear()

    def _stop_all(self, number: int, _frame: FrameType | None) -> None:
        for each, before in self._before.items():
            signal.signal(each, _after_first(before))
        for stop in list(self._stops):
            stop(signal.Signals(number))


def _after_first(before: Any) -> Any:
    """Return what handles the second signal: the application, or else nobody, so that it ends the process at once."""
    return signal.SIG_DFL if _is_pythons(before) else before


def _is_pythons(handler: Any) -> bool:
    """Return whether a handler is the one that Python itself, or asyncio.run, has installed."""
    if handler is signal.SIG_DFL or handler is signal.default_int_handler:
        return True
    owner = getattr(getattr(handler, "func", None), "__self__", None)
    return isinstance(owner, asyncio.Runner)


_PROCESS: Final = _ProcessSignals()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_PROCESS.forget)
