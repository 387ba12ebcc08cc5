"""Places for streams: so many of a kind at a time, and whoever comes next is sent to another broker.

What a stream may hold has a bound; so the number of streams must have one, or the sum has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from msgbroker.contract.errors import TooManyStreamsError
from msgbroker.server import clock

_RETRY_AFTER_SECONDS: Final = 1.0


class Places:
    """See the module."""

    def __init__(self, kind: str, count_max: int) -> None:
        self.kind = kind
        """What they are called when one is refused."""
        self.count_max = count_max
        self.count = 0
        self.refused_count = 0
        self.refused_at: float | None = None

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Have a place for the length of the block. Raises TooManyStreamsError."""
        if self.count >= self.count_max:
            self.refused_count += 1
            self.refused_at = clock.now()
            raise TooManyStreamsError(self.kind, self.count_max, _RETRY_AFTER_SECONDS)
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1
