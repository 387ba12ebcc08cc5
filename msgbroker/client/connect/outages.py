"""Tells people that a group, or the publisher, is without a broker.

Once when it is lost, rarely while that lasts, and once when it is served again. Which brokers were tried in between,
and how often, is for those who ask for more than warnings.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from msgbroker.client.connect.unreachable import why
from msgbroker.client.values.log_lines import log_line
from msgbroker.contract.errors import MessageCenterError

REMINDER_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Said:
    """What there is to say of an outage."""

    event: str
    sentence: str = ""
    keys: dict[str, object] = field(default_factory=dict)


class Outage:
    """Decides what there is to say of one that is served by brokers. Pure: told what happens and when."""

    def __init__(self) -> None:
        self._was_served = False
        self._lost_at: float | None = None
        self._said_at = 0.0

    def lost(self, address: str, cause: MessageCenterError, now: float, *, has_others: bool) -> Said | None:
        """Take note that a broker could not be used and that another attempt follows."""
        if self._lost_at is None:
            self._lost_at = self._said_at = now
            event = "broker_lost" if self._was_served else "broker_not_reached"
            return Said(event, f"{why(address, cause)}; trying {'others' if has_others else 'again'}")
        if now - self._said_at < REMINDER_SECONDS:
            return None
        self._said_at = now
        return Said("broker_missed", f"{why(address, cause)}; trying on", {"seconds": f"{now - self._lost_at:.0f}"})

    def back(self, now: float) -> Said | None:
        """Take note that a broker serves it."""
        lost_at, self._lost_at = self._lost_at, None
        self._was_served = True
        return None if lost_at is None else Said("broker_found", keys={"seconds": f"{now - lost_at:.1f}"})


class OutageLog:
    """Logs the outages of *component* (`publisher`, `subscriber`), which *whose* tells from others of its kind."""

    def __init__(self, component: str, clock: Callable[[], float] = time.monotonic, **whose: str) -> None:
        self._component = component
        self._whose = whose
        self._outage = Outage()
        self._clock = clock

    def lost(self, address: str, cause: MessageCenterError, *, has_others: bool = False) -> None:
        """Take note that a broker could not be used and that another attempt follows."""
        said = self._outage.lost(address, cause, self._clock(), has_others=has_others)
        self._log(said, address, reason=cause.reason)

    def back(self, address: str) -> None:
        """Take note that a broker serves it."""
        self._log(self._outage.back(self._clock()), address)

    def _log(self, said: Said | None, address: str, **more: str) -> None:
        if said is not None:
            # The end is as loud as what it ends: who has read that one waits for this one.
            event = f"{self._component}.{said.event}"
            log_line(logging.WARNING, event, said.sentence, **self._whose, address=address, **more, **said.keys)
