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
"""Of the ack timeout. What has not been started by then may be somebody else's before it is finished."""
_EXTEND_SHARE: Final = 1 / 3
"""Of the ack timeout. Once it has passed since a message came, or was extended last, its time is extended."""
_LOOKS: Final = 10
"""In the length of the ack timeout. What was begun at the last moment (`START_SHARE`) is looked at in time."""
_LOOK_SECONDS_MAX: Final = 5.0


@dataclass(frozen=True, slots=True)
class Hold:
    """What the broker has told of an instance's time to answer."""

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
        """How long a handler may take."""
        return max(self.ack_timeout_seconds, self.handle_seconds_max)

    @property
    def extend_seconds(self) -> float:
        """So long after a message came, or was extended last, it is extended."""
        return self.ack_timeout_seconds * _EXTEND_SHARE
