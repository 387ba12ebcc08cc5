"""Which messages are traced: a function of a message's id and its topic's rate alone, so that all brokers agree.

An id's *draw* is a number from 0 to below `DRAWS`. A message is traced where it lies below the rate's *threshold*: what
is traced at a rate is traced at every higher one, too. Ids are minted in runs of consecutive numbers, and the draws of
a run are those of a counter with its bits in reverse order, begun at a place that the run's random part gives: any
share of a run is spread evenly over it, and which of a run may be traced is reckoned without looking at the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_BITS: Final = 20
DRAWS: Final = 1 << _BITS
"""How many draws there are. It is the draw of what is never traced, too: no threshold is above it."""
ALWAYS_TRACED: Final = -1
"""The draw of what is traced at any rate but 0: somebody has asked for it, and will ask what became of it."""
_MASK: Final = DRAWS - 1
_FIRST_BYTE_THAT_MATTERS: Final = 11
_HALF_BITS: Final = 10
_HALF_MASK: Final = (1 << _HALF_BITS) - 1
_REVERSED: Final = [int(f"{half:010b}"[::-1], 2) for half in range(1 << _HALF_BITS)]


def threshold_of(rate: float) -> int:
    """Return below which draw a message is traced at *rate*, from 0 (none) to 1 (all)."""
    return round(rate * DRAWS)


def draw_of(message_id: bytes) -> int:
    """Return the draw of a message."""
    # This is done for every message that is read back: as `_draw` does it, of the bytes that matter, without a call.
    number = int.from_bytes(message_id[_FIRST_BYTE_THAT_MATTERS:], "big")
    counter = number + (number >> _BITS)
    return _REVERSED[counter & _HALF_MASK] << _HALF_BITS | _REVERSED[counter >> _HALF_BITS & _HALF_MASK]


def draws_below(threshold: int, first_number: int, count: int) -> Iterator[tuple[int, int]]:
    """Return the messages of a run whose draws are below *threshold*, ascending: their places in it, and their draws.

    The run is of *count* ids from the number *first_number* on. Looked at are twice as many as are found, at most.
    """
    if threshold <= 0:
        return
    # Reversed, a counter that is a multiple of the stride is below DRAWS / stride, and no other one is.
    stride = DRAWS >> (threshold - 1).bit_length()
    counter = _counter(first_number)
    for place in range(-counter % stride, count, stride):
        draw = _draw(first_number + place)
        if draw < threshold:
            yield place, draw


def _counter(number: int) -> int:
    # What is above the counting bits is random in each run, but for the time: its bits there are as good as any.
    return (number + (number >> _BITS)) & _MASK


def _draw(number: int) -> int:
    counter = _counter(number)
    return _REVERSED[counter & _HALF_MASK] << _HALF_BITS | _REVERSED[counter >> _HALF_BITS]
