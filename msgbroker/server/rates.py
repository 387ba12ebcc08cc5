"""How many of something there were a second lately, for people who look: two numbers for each that is counted."""

from __future__ import annotations

from typing import Final

WINDOW_SECONDS: Final = 10.0
_AGE_SECONDS_MIN: Final = 1.0
"""Of what began a moment ago a rate would say anything."""


class Rate:
    """Counts by windows of time: what is told covers the last whole one, and what has passed of this one."""

    __slots__ = ("_before", "_began_at", "_count", "_ends_at")

    def __init__(self, now: float) -> None:
        self._began_at = now
        self._ends_at = now + WINDOW_SECONDS
        self._before = 0
        self._count = 0

    def add(self, count: int, now: float) -> None:
        """Count so many more."""
        if now >= self._ends_at:
            self._turn(now)
        self._count += count

    def a_second(self, now: float) -> float:
        """Return how many there were a second."""
        if now >= self._ends_at:
            self._turn(now)
        age_seconds = now - self._began_at
        covered_seconds = min(age_seconds, now - self._ends_at + 2 * WINDOW_SECONDS)
        return (self._before + self._count) / max(covered_seconds, _AGE_SECONDS_MIN)

    def _turn(self, now: float) -> None:
        passed = int((now - self._ends_at) // WINDOW_SECONDS)
        self._before = self._count if passed == 0 else 0
        self._count = 0
        self._ends_at += (passed + 1) * WINDOW_SECONDS
