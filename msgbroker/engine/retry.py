"""When a failed message is tried again, and when no more."""

from __future__ import annotations

from dataclasses import dataclass

from msgbroker.contract import limits


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a message waits before each further attempt, and after how many it is a dead letter."""

    schedule_seconds: tuple[float, ...] = limits.RETRY_SCHEDULE_SECONDS_DEFAULT
    """The wait after attempt n is entry n - 1."""
    attempts_max: int = len(limits.RETRY_SCHEDULE_SECONDS_DEFAULT) + 1

    def delay_after(self, attempt: int) -> float | None:
        """Return how long to wait after attempt number *attempt* failed; None: it was the last."""
        if self.is_last(attempt):
            return None
        return self.schedule_seconds[attempt - 1]

    def is_last(self, attempt: int) -> bool:
        """Return whether no attempt may follow number *attempt*: the maximum or the schedule's end is reached."""
        return attempt >= self.attempts_max or attempt > len(self.schedule_seconds)
