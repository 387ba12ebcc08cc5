"""What is said as a center is closed, or as its program ends without closing it."""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable, Mapping

from msgbroker.client.values.log_lines import log_line


def log_closing(signal_name: str, seconds_max: float) -> None:
    """Say that a center was told to close by a signal, and how long that may take."""
    sentence = f"running handlers may take {seconds_max:g} s more; a second signal ends the process at once"
    log_line(logging.INFO, "center.close_begun", sentence, signal=signal_name)


def log_waiting(seconds_left: float, running_counts: Mapping[str, int], unanswered_count: int) -> None:
    """Say what closing waits for, if it is anything that we know of."""
    waited_for = [f"handlers of group {group}: {count}" for group, count in running_counts.items()]
    if unanswered_count:
        waited_for.append(f"unanswered messages: {unanswered_count}")
    if waited_for:
        sentence = f"waits up to {seconds_left:.2g} s more for {', '.join(waited_for)}"
        log_line(logging.WARNING, "center.close_delayed", sentence)


def log_left_unanswered(count: int) -> None:
    """Say that closing gives up published messages that were not answered in time."""
    log_line(logging.WARNING, "center.messages_left_unanswered", count=count)


def log_not_closed(kind: str, remedy: str, unanswered_count: int) -> None:
    """Say that a center was not closed, and how many published messages nobody waited for."""
    lost = f"; {unanswered_count} published and not answered may be lost" if unanswered_count else ""
    log_line(logging.WARNING, "center.not_closed", f"this {kind} was not closed: {remedy}{lost}")


class OpenCenters:
    """The centers of this process with a thread of their own, which ends with it without a word."""

    def __init__(self) -> None:
        self._unanswered_counts: dict[object, Callable[[], int | None]] = {}
        atexit.register(self._say)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._unanswered_counts.clear)

    def add(self, center: object, unanswered_count: Callable[[], int | None]) -> None:
        """Take note of one that was opened; None as its count: nothing is lost with it, whenever it ends."""
        self._unanswered_counts[center] = unanswered_count

    def discard(self, center: object) -> None:
        """Forget a center, as it is closed."""
        self._unanswered_counts.pop(center, None)

    def _say(self) -> None:
        for unanswered_count in self._unanswered_counts.values():
            count = unanswered_count()
            if count is not None:
                log_not_closed("SyncMessageCenter", "use `with`, or call close()", count)
