"""Tells people that no broker can be reached: at once, and then rarely enough to be read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from msgbroker.contract.errors import MessageCenterError

log = logging.getLogger("msgbroker.client")

WARNING_INTERVAL_SECONDS: Final = 30.0


class OutageLog:
    """The warnings of all streams of one center: at most one in 30 s."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._warned_at: float | None = None

    def unreachable(self, address: str, cause: MessageCenterError) -> None:
        """Take note that a broker could not be used and that another attempt follows."""
        now = self._clock()
        if self._warned_at is not None and now - self._warned_at < WARNING_INTERVAL_SECONDS:
            return
        self._warned_at = now
        # The cause names the address itself, for those it is raised to.
        why = cause.message.removeprefix(f"broker {address}").lstrip(": ")
        log.warning("cannot reach %s (%s), trying again", address, why, extra={"reason": cause.reason})
