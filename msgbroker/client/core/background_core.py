"""A center's core on a thread of its own, for callers in other threads: what is behind a SyncMessageCenter.

The thread begins with the first call that needs it. Calls wait for their end there; messages that are published without
waiting go in by the handover, and whatever is called afterwards comes behind them.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from msgbroker.client.connect import forks
from msgbroker.client.core.center_core import CenterCore
from msgbroker.client.core.last_words import OpenCenters
from msgbroker.client.core.loop_thread import LoopThread
from msgbroker.client.core.stop_signals import stopped_by_signals
from msgbroker.client.publish.handover import Handover
from msgbroker.client.publish.publisher import ReceiptFuture
from msgbroker.contract.errors import CenterClosedError, MessageCenterError

_CLOSING_THREAD_NAME: Final = "msgcenter-close"
_OPEN_CENTERS: Final = OpenCenters()

Result = TypeVar("Result")


class BackgroundCore:
    """Runs a core's coroutines for whichever thread asks, but the core's own."""

    def __init__(self, core: CenterCore) -> None:
        self._core = core
        self._is_closed = False
        self._begin()
        forks.watch_center(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._handover: Handover | None = None
        self._has_closed = threading.Event()

    def begin_anew(self) -> None:
        """Go on in a forked process as if this had never been used."""
        if self._handover is not None:
            self._handover.abandon()
        forks.never_free(self._lock, self._thread, self._handover, self._has_closed)
        self._begin()
        if self._is_closed:
            # Or by a thread that is not here: nobody else would say so.
            self._has_closed.set()

    def call(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine of the core and wait for its end; raise CenterClosedError where it is closed."""
        try:
            handover = self.handover()
        except BaseException:
            coroutine.close()
            raise
        assert self._thread is not None  # made with the handover
        return self._thread.call(coroutine, behind=handover.fetch)

    def handover(self) -> Handover:
        """Return where messages go in without waiting; raise CenterClosedError where it is closed."""
        self._running_thread()
        assert self._handover is not None  # made with the thread
        return self._handover

    def run(self, *, handle_signals: bool | None) -> dict[str, MessageCenterError]:
        """Run the subscribers as the core does, with the signals of the caller's thread; close after the first one."""
        handover, thread = self.handover(), self._running_thread()
        has_come = False

        def close(number: signal.Signals) -> None:
            handover.fetch()
            self._core.close_by_signal(number)

        def stop(number: signal.Signals) -> None:
            # In the middle of anything: closing from here might wait for what was interrupted.
            nonlocal has_come
            has_come = True
            with suppress(RuntimeError):
                # Else the loop is closed, and so is the center.
                thread.loop.call_soon_threadsafe(close, number)

        with stopped_by_signals(stop, handle_signals):
            try:
                ended = self.call(self._core.run(handle_signals=False))
            except CenterClosedError:
                if not has_come:
                    raise
                # It was closed before it had begun.
                ended = self._core.ended_groups
        if has_come:
            self.close()
        return ended

    def close(self) -> None:
        """Close the core, and end the thread; every call waits until that is done, but for that of a handler."""
        with self._lock:
            thread = self._thread
            if thread is not None and thread.is_current():
                raise RuntimeError(
                    "an async handler or a callback cannot close SyncMessageCenter: it would wait for itself; "
                    "close it in another thread: threading.Thread(target=center.close).start()"
                )
            is_first, self._is_closed = not self._is_closed, True
        if thread is not None and thread.is_of_handler():
            # It is one of those that are waited for.
            if is_first:
                threading.Thread(target=self._close, name=_CLOSING_THREAD_NAME).start()
        elif is_first:
            self._close()
        else:
            self._has_closed.wait()

    def _close(self) -> None:
        _OPEN_CENTERS.discard(self)
        thread, handover = self._thread, self._handover
        try:
            if thread is not None and handover is not None:
                try:
                    # Handlers publish: all calls go on, and the core decides, until they are done.
                    thread.call(self._core.close(), behind=handover.fetch)
                finally:
                    handover.close()
                    thread.stop()
        finally:
            self._has_closed.set()

    def _running_thread(self) -> LoopThread:
        with self._lock:
            if self._thread is None:
                if self._is_closed:
                    raise CenterClosedError
                self._thread = LoopThread()
                self._handover = Handover(self._thread.loop, self._offer, self._core.config)
                _OPEN_CENTERS.add(self, lambda: self._core.left_count)
            thread = self._thread
        if thread.is_current():
            raise RuntimeError("an async handler cannot call SyncMessageCenter: it would wait for itself")
        return thread

    def _offer(self, encoded: bytes) -> ReceiptFuture:
        return self._core.open_buffer().offer_in_turn(encoded)
