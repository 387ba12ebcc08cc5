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


class Place:
    """A place that was taken. Whoever knows first that it is not needed leaves it; a repeat changes nothing."""

    __slots__ = ("_places",)

    def __init__(self, places: Places) -> None:
        places.take()
        self._places: Places | None = places

    def change_to(self, places: Places) -> None:
        """Take a place of another kind, and leave this one. Where there is none, raise as `Places.take` and keep it."""
        places.take()
        self.leave()
        self._places = places

    def leave(self) -> None:
        """Give the place back."""
        places, self._places = self._places, None
        if places is not None:
            places.leave()


class Places:
    """So many places for streams or calls of one kind."""

    def __init__(
        self, kind: str, count_max: int, refusal: Callable[[str, int, float], MessageCenterError] = TooManyStreamsError
    ) -> None:
        self.kind = kind
        """What they are called when one is refused."""
        self.count_max = count_max
        self.count = 0
        self.refused_at: float | None = None
        """When somebody found no place, the last time."""
        self._refusal = refusal

    @property
    def are_full(self) -> bool:
        """Whether all places are taken, so that whoever comes now is refused."""
        return self.count >= self.count_max

    def take(self) -> None:
        """Take a place; whoever does leaves it again. Raises TooManyStreamsError, or what else it was made with."""
        if self.are_full:
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
