"""The clock that leases and everything a lane waits for are counted by."""

from __future__ import annotations

import time
from typing import Final

# CLOCK_MONOTONIC stands still while the machine is suspended, and the database's clock does not: a lease would seem
# to run on after another broker has taken the lane. Where there is no other clock, it must do.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Return seconds since some moment; they go on while this process, or the machine, is stopped."""
    return time.clock_gettime(_CLOCK)
