"""How fast a job goes: so many messages a second at most, whatever the size of its steps. Pure."""

from __future__ import annotations

from typing import Final

_PORTION_SECONDS: Final = 0.1
"""A step does as many messages as come to so much time at the job's rate: work comes in even portions."""
_SMALL_MESSAGES: Final = 50
"""What is stored between two portions of so many hardly waits for them; behind 200 it waits twice as long as alone."""
_LARGE_PORTION_SECONDS: Final = 0.025
STEP_MESSAGES_MAX: Final = 200
"""At high rates portions grow up to here: then haste was asked for."""


def step_messages(rate: float) -> int:
    """Return how many messages the next step does at that rate."""
    small = min(_SMALL_MESSAGES, rate * _PORTION_SECONDS)
    large = min(STEP_MESSAGES_MAX, rate * _LARGE_PORTION_SECONDS)
    return max(1, round(max(small, large)))


class Pace:
    """When the next step may begin. Time that was not used is not made up for."""

    def __init__(self, now: float) -> None:
        self._next_at = now

    def begin(self, now: float, messages: int, rate: float) -> None:
        """Note that a step of so many messages began."""
        self._next_at = max(self._next_at, now) + messages / rate

    def wait_seconds(self, now: float) -> float:
        """Return how long to wait before the next step."""
        return max(0.0, self._next_at - now)
