"""How long a broker may be silent that has frames to answer.

It cannot answer a frame before it has all of it. So its time begins anew with each piece of the oldest unanswered frame
that gRPC has taken. What gRPC has taken may still be on its way, one gRPC message of it about: that has the time which
brokers give it, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgbroker.contract import limits


class Silence:
    """Measures for how long the broker of a publisher's stream has said nothing."""

    def __init__(self, answer_timeout_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._answer_timeout_seconds = answer_timeout_seconds
        self._clock = clock
        self._began_at = clock()

    @property
    def seconds(self) -> float:
        """How long the broker has been silent."""
        return self._clock() - self._began_at

    def begin(self) -> None:
        """Take note that something was heard, or that nothing was expected until now."""
        self._began_at = self._clock()

    def wrote(self, in_flight: int) -> None:
        """Take note that a piece of a frame goes out, or has: of the last one of so many that are not answered."""
        if in_flight == 1:
            # There is no other one that could have been answered.
            self.begin()

    def seconds_max(self, frame_bytes: int) -> float:
        """Return how long it may last where the oldest unanswered frame has so many bytes."""
        under_way = min(1.0, frame_bytes / limits.GRPC_MESSAGE_BYTES_MAX)
        return self._answer_timeout_seconds + under_way * limits.REQUEST_SECONDS_MAX
