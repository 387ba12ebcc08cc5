"""How long messages took from the log to their acknowledgement, in classes. Pure; writers and readers share it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

BOUNDS_US: Final = tuple(
    round(seconds * 1_000_000)
    for seconds in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 3_600, 86_400)
)
"""Up to how long each class goes; the last class, behind these, has no end. Stored by their places: never changed."""
CLASSES: Final = len(BOUNDS_US) + 1


def add_latencies(classes: list[int], stored_at_us: Sequence[int], now_us: int) -> None:
    """Add what was stored at these times, which never go back, and is acknowledged now.

    A batch nearly always falls into one class or two: so nothing is done for each message.
    """
    lowest = bisect_left(BOUNDS_US, now_us - stored_at_us[-1])
    highest = bisect_left(BOUNDS_US, now_us - stored_at_us[0])
    end = len(stored_at_us)
    for place in range(lowest, highest):
        first = bisect_left(stored_at_us, now_us - BOUNDS_US[place], 0, end)
        classes[place] += end - first
        end = first
    classes[max(lowest, highest)] += end


def within_seconds(classes: Sequence[int], share: float) -> float | None:
    """Return within how many seconds that *share* of them was acknowledged, as the bound of a class.

    None: nothing was acknowledged, or more of it took longer than the last bound.
    """
    wanted, seen = share * sum(classes), 0
    for place, count in enumerate(classes):
        seen += count
        if seen and seen >= wanted:
            return BOUNDS_US[place] / 1_000_000 if place < len(BOUNDS_US) else None
    return None
