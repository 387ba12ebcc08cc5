"""Places for streams and calls: so many of a kind at a time, and whoever comes next is sent to another broker.

What a stream or call may hold has a bound; so their number must have one, or the sum has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from msgbroker.contract.errors import MessageCenterError, TooManyStreamsError
from msgbroker.server import clock

_RETRY_AFTER_SECONDS: Final = 1.0


class Places:
    """See the module."""

    def __init__(
        self, kind: str, count_max: int, refusal: Callable[[str, int, float], MessageCenterError] = TooManyStreamsError
    ) -> None:
        self.kind = kind
        """What they are called when one is refused."""
        self.count_max = count_max
        self.count = 0
        self.refused_at: float | None = None
        self._refusal = refusal

    def take(self) -> None:
        """Take a place; whoever does leaves it again. Raises TooManyStreamsError, or what else it was made with."""
        if self.count >= self.count_max:
            self.refused_at = clock.now()
            raise self._refusal(self.kind, self.count_max, _RETRY_AFTER_SECONDS)
        self.count += 1

    def leave(self) -> None:
        """Give a place back."""
        self.count -= 1

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Have a place for the length of the block. Raises what `take` does."""
        self.take()
        try:
            yield
        finally:
            self.leave()
