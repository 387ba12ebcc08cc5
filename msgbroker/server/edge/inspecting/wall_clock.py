"""Moments of the broker's clock as people have them."""

from __future__ import annotations

import time

from msgbroker.server import clock


class WallClock:
    """Makes moments of `clock` into time since 1970, all of one answer by the same difference."""

    def __init__(self) -> None:
        self.now = clock.now()
        self._ahead_seconds = time.time() - self.now

    def us(self, moment: float) -> int:
        """Return microseconds since 1970."""
        return round((moment + self._ahead_seconds) * 1_000_000)
