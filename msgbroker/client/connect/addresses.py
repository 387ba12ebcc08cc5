"""Which broker to try next, and how long to wait before it. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Final

ADDRESSES_MAX: Final = 100
RELOCATIONS_IN_A_ROW_MAX: Final = 3


class Addresses:
    """The brokers known: those the user gave, then those that brokers told of; tried in turn."""

    def __init__(self, given: Sequence[str]) -> None:
        self._given = list(given)
        self._learnt: list[str] = []
        self._preferred: list[str] = []
        self._position = 0

    @property
    def known(self) -> list[str]:
        """All brokers that are known, those that the user gave first."""
        return self._given + self._learnt

    def current(self) -> str:
        """Return the address of the broker to try now."""
        if self._preferred:
            return self._preferred[0]
        known = self.known
        return known[self._position % len(known)]

    def advance(self) -> None:
        """Go on to the next broker: the current one could not be used."""
        if self._preferred:
            self._preferred.pop(0)
        else:
            self._position = (self._position + 1) % len(self.known)

    def learn(self, addresses: Iterable[str]) -> None:
        """Replace what brokers told of other brokers; the current address stays, if it is among them."""
        staying = self.current()
        self._learnt = [address for address in addresses if address not in self._given][:ADDRESSES_MAX]
        known = self.known
        if not self._preferred:
            self._position = known.index(staying) if staying in known else 0

    def prefer(self, addresses: Iterable[str]) -> None:
        """Try these addresses next, once each, before the others."""
        self._preferred = list(addresses)[:ADDRESSES_MAX]


class Backoff:
    """Exponentially growing waits with jitter, so that a thousand clients do not come back in step."""

    def __init__(self, initial_seconds: float, max_seconds: float, rng: random.Random | None = None) -> None:
        self._initial_seconds = initial_seconds
        self._max_seconds = max_seconds
        self._random = rng or random.Random()  # noqa: S311 - spreads load, hides nothing
        self._next_seconds = initial_seconds

    def next_seconds(self, at_least_seconds: float = 0.0) -> float:
        """Return how long to wait now; the next wait is longer."""
        bound_seconds = self._next_seconds
        self._next_seconds = min(self._max_seconds, 2 * bound_seconds)
        return max(at_least_seconds, bound_seconds * self._random.uniform(0.5, 1.0))

    def reset(self) -> None:
        """Start again with short waits: something worked."""
        self._next_seconds = self._initial_seconds
