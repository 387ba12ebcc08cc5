"""What the store's clock shows, as far as this process knows: all brokers count by it, whatever their own show."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from msgbroker.server import clock

_MICROSECONDS: Final = 1_000_000
_ANSWERS: Final = 6
"""Of so many answers the one that came soonest is believed: it says best when it was given."""


class StoreClock:
    """Goes on by this machine's clock from what the store said; by the system's time before it has said anything."""

    def __init__(self, now: Callable[[], float] = clock.now) -> None:
        self._now = now
        self._ahead_us = round(time.time() * _MICROSECONDS - now() * _MICROSECONDS)
        self._answers: deque[tuple[float, int]] = deque(maxlen=_ANSWERS)
        """How long each took, and by how much the store's clock was ahead then."""

    def now_us(self) -> int:
        """Return microseconds since 1970."""
        return int(self._now() * _MICROSECONDS) + self._ahead_us

    def learn(self, said_us: int, asked_at: float) -> None:
        """Go on from what the store said to a question that was asked at *asked_at*, and answered just now."""
        answered_at = self._now()
        ahead_us = said_us - round((asked_at + answered_at) / 2 * _MICROSECONDS)
        self._answers.append((answered_at - asked_at, ahead_us))
        self._ahead_us = min(self._answers)[1]
