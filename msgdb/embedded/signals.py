"""Signals that ask a program to stop, and the steps that they must not tear apart.

A process that was started runs on until somebody stops it, and that takes somebody who knows of it: whoever starts one
holds signals back until it is noted where it is stopped.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

STOPPING_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def signals_held_back() -> Iterator[None]:
    """Let signals that ask to stop wait for the end of the block, and then do what they would have done."""
    if threading.current_thread() is not threading.main_thread():
        # Handlers run in the main thread alone.
        yield
        return
    waiting: list[int] = []
    handlers = {number: signal.getsignal(number) for number in STOPPING_SIGNALS}
    for number, handler in handlers.items():
        # What is ignored stays so, in the processes that are started, too.
        if handler is not signal.SIG_IGN:
            signal.signal(number, lambda came, _: waiting.append(came))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for came in waiting:
            signal.raise_signal(came)
