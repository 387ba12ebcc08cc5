"""How many unsettled messages to ask for.

Pure. Enough that handlers never run dry, no more than they get through in half a second: what waits here waits on a
clock (the group's ack timeout), and is out of other instances' reach.
"""

from __future__ import annotations

from typing import Final

HOLD_SECONDS: Final = 0.5
OBSERVE_SECONDS: Final = 0.1


class CreditGauge:
    """Follows how fast messages are settled and says when the credit should change."""

    def __init__(self, credit_min: int, credit_max: int, now: float) -> None:
        self.credit = min(credit_min, credit_max)
        self._min = credit_min
        self._max = credit_max
        self._since = now
        self._settled_before = 0

    def cap(self, credit_max: int) -> None:
        """Take note of the most that the group allows."""
        self._max = max(1, credit_max)
        self.credit = min(self.credit, self._max)

    def observe(self, settled_count: int, now: float) -> int | None:
        """Take the number of messages settled so far; return the new credit if it should change."""
        elapsed = now - self._since
        if elapsed < OBSERVE_SECONDS:
            return None
        rate = (settled_count - self._settled_before) / elapsed
        self._since = now
        self._settled_before = settled_count
        wanted = min(max(self._min, int(rate * HOLD_SECONDS)), self._max)
        # Small changes are not worth a word.
        if self.credit * 0.75 <= wanted <= self.credit * 1.25:
            return None
        self.credit = wanted
        return wanted
