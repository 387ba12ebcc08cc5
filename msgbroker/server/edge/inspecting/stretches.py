"""Stretches of what is told: between them others have their turn of the event loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

ThingT = TypeVar("ThingT")

_STRETCH: Final = 100
"""So many things are told of without a turn for anybody else: less than a millisecond."""


def stretches(things: Sequence[ThingT]) -> Iterator[Sequence[ThingT]]:
    """Give *things* in stretches."""
    for first in range(0, len(things), _STRETCH):
        yield things[first : first + _STRETCH]
