"""Tells people that a group, or the publisher, is without a broker.

Once when it is lost, rarely while that lasts, and once when it is served again. Which brokers were tried in between,
and how often, is for those who ask for more than warnings.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from msgbroker.client.connect.unreachable import why
from msgbroker.contract.errors import MessageCenterError

log = logging.getLogger("msgbroker.client")

REMINDER_SECONDS: Final = 30.0


class Outage:
    """What there is to say of one that is served by brokers. Pure: told what happens and when, returns the words."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._was_served = False
        self._lost_at: float | None = None
        self._said_at = 0.0

    def lost(self, address: str, cause: MessageCenterError, now: float, *, has_others: bool) -> str | None:
        """Take note that a broker could not be used and that another attempt follows."""
        problem = f"{address} ({why(address, cause)})"
        if self._lost_at is None:
            self._lost_at = self._said_at = now
            verb = "has lost" if self._was_served else "cannot reach"
            return f"{self._who} {verb} {problem}, trying {'others' if has_others else 'again'}"
        if now - self._said_at < REMINDER_SECONDS:
            return None
        self._said_at = now
        return f"{self._who} is without a broker for {now - self._lost_at:.0f} s: {problem}, trying on"

    def back(self, address: str, now: float) -> str | None:
        """Take note that a broker serves it."""
        lost_at, self._lost_at = self._lost_at, None
        again = " again" if self._was_served else ""
        self._was_served = True
        return None if lost_at is None else f"{self._who} is served{again} by {address} after {now - lost_at:.1f} s"


class OutageLog:
    """Logs what there is to say of one of them."""

    def __init__(self, who: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._outage = Outage(who)
        self._clock = clock

    def lost(self, address: str, cause: MessageCenterError, *, has_others: bool = False) -> None:
        """Take note that a broker could not be used and that another attempt follows."""
        said = self._outage.lost(address, cause, self._clock(), has_others=has_others)
        if said is not None:
            log.warning("%s", said, extra={"reason": cause.reason, "address": address})

    def back(self, address: str) -> None:
        """Take note that a broker serves it."""
        said = self._outage.back(address, self._clock())
        if said is not None:
            # As loud as what it ends: who has read that one waits for this one.
            log.warning("%s", said, extra={"address": address})
