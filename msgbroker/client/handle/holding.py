"""How long an instance may keep what its handlers are at, by extending its time to answer.

A handler that is done within a third of the ack timeout costs nothing. One that takes longer keeps its message, up to
the limit of its group; at half of that it is spoken of (`works`). What waits and is not begun is never kept: others may
be free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

START_SHARE: Final = 0.8
"""The share of the ack timeout in which a message must be begun; later it may be somebody else's before it is done."""
_EXTEND_SHARE: Final = 1 / 3
"""The share of the ack timeout after which a message is extended, counted since it came or was extended last."""
_LOOKS: Final = 10
"""How many looks there are in an ack timeout: what was begun at the last moment (`START_SHARE`) is seen in time."""
_LOOK_SECONDS_MAX: Final = 5.0


@dataclass(frozen=True, slots=True)
class Hold:
    """The limits of an instance's time to answer, as the broker has told them."""

    ack_timeout_seconds: float = math.inf
    handle_seconds_max: float = 0.0
    """How long extensions may go on; 0: there are none."""

    @property
    def start_seconds(self) -> float:
        """How long a message may wait to be begun."""
        return self.ack_timeout_seconds * START_SHARE

    @property
    def look_seconds(self) -> float:
        """How often it has to be looked at what handlers are at."""
        return min(self.ack_timeout_seconds / _LOOKS, _LOOK_SECONDS_MAX)

    @property
    def limit_seconds(self) -> float:
        """How many seconds a handler may take for one message."""
        return max(self.ack_timeout_seconds, self.handle_seconds_max)

    @property
    def extend_seconds(self) -> float:
        """How long after a message came, or was extended last, it is extended."""
        return self.ack_timeout_seconds * _EXTEND_SHARE
