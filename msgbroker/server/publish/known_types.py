"""How many message types all publishers' streams may remember together.

A stream remembers what its message types mean, so as not to work it out for each message. Of an open topic there are as
many as its publishers think of, and there may be many streams.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_OWN_MIN: Final = 32
"""How many types each stream may remember, whatever the others do."""
_OWN_MAX: Final = 4_096


@dataclass(slots=True)
class KnownTypes:
    """How many types all streams remember together now, and from how many on each must do with few."""

    count_max: int = 20_000
    count: int = 0

    def has_room(self, own_count: int) -> bool:
        """Return whether a stream that remembers so many may remember another one; else it begins anew."""
        return own_count < (_OWN_MAX if self.count < self.count_max else _OWN_MIN)
