"""How fast a job goes: so many messages a second at most, whatever the size of its steps. Pure."""

from __future__ import annotations

from typing import Final

STEP_SECONDS: Final = 0.1
"""A step does as many messages as come to so much time at the job's rate: work comes in small, even portions."""
STEP_MESSAGES_MAX: Final = 200


def step_messages(rate: float) -> int:
    """Return how many messages the next step does at that rate."""
    return max(1, min(STEP_MESSAGES_MAX, round(rate * STEP_SECONDS)))


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
