"""Extending the time that an instance has for what it has begun: it never shortens it, and it has an end."""

from __future__ import annotations

import math
from typing import NamedTuple


class Extension(NamedTuple):
    """How long an instance asks to keep a message, and how long its group allows that at most."""

    now: float
    seconds: float
    """How much time it asks for, from now on."""
    handle_seconds_max: float
    """How long a message may be kept in all, from its first extension on."""

    def applied_to(self, deadline: float, keep_until: float) -> tuple[float, float]:
        """Return the new deadline, and until when it may be extended again; infinite: it never was before."""
        if keep_until == math.inf:
            keep_until = self.now + self.handle_seconds_max
        return max(deadline, min(self.now + self.seconds, keep_until)), keep_until
