"""Ending a job in good order: by a signal, or because whoever started it is gone.

Whatever asks a job to end interrupts it as Ctrl-C would: what Spark does for it is cancelled, its run is noted as
failed, so that the day can be claimed at once, and Spark is stopped. Java ends by itself with the process that has
started it, and Spark's workers with Java.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from types import FrameType
from typing import Final

EXIT_INTERRUPTED: Final = 130
_SECONDS_MAX: Final = 30.0
"""How long a job that nobody listens to any more may take to end in good order."""


def interrupt_by_signals() -> None:
    """Let each signal that asks to stop interrupt the main thread. Again once Spark is there: it takes SIGINT over.

    Spark's own way asks Java to cancel, in the middle of whatever this thread is asking Java for.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Started by nohup, it outlives its terminal.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def end_with_listener(descriptor: int) -> None:
    """End this process once nobody reads the pipe *descriptor* any more: who started it was killed."""
    threading.Thread(target=_wait_for_end, args=(descriptor,), name="listener", daemon=True).start()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    # By its handler, which asyncio replaces by one that cancels what runs.
    signal.raise_signal(signal.SIGINT)


def _wait_for_end(descriptor: int) -> None:
    poll = select.poll()
    # Nothing but what is always told: that the other end is closed.
    poll.register(descriptor, 0)
    poll.poll()
    main = threading.main_thread()
    assert main.ident is not None, "it runs"
    # To this thread, or a call that it waits for would go on.
    signal.pthread_kill(main.ident, signal.SIGINT)
    time.sleep(_SECONDS_MAX)
    os._exit(EXIT_INTERRUPTED)
