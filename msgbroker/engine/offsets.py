"""Offsets of a queue as ranges, and the set of those that a cursor has behind it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from msgdb.lanes.records import OffsetRange


class SettledOffsets:
    """Every offset below `floor`, and ranges above it. Offsets are only ever added.

    Kept as two ascending lists of disjoint, non-adjacent ranges: an acknowledgement in order only moves `floor`.
    """

    __slots__ = ("_ends", "_starts", "floor")

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, first: int, end: int) -> None:
        """Add the offsets from *first* to below *end*."""
        if end <= self.floor or end <= first:
            return
        if first <= self.floor:
            self._raise_floor(end)
        elif not self._starts or first > self._ends[-1]:
            self._starts.append(first)
            self._ends.append(end)
        else:
            self._merge(first, end)

    def _raise_floor(self, end: int) -> None:
        absorbed = bisect_right(self._starts, end) if self._starts else 0
        if absorbed:
            end = max(end, self._ends[absorbed - 1])
            del self._starts[:absorbed]
            del self._ends[:absorbed]
        self.floor = end

    def _merge(self, first: int, end: int) -> None:
        starts, ends = self._starts, self._ends
        low = bisect_left(ends, first)
        high = bisect_right(starts, end)
        if low < high:
            first = min(first, starts[low])
            end = max(end, ends[high - 1])
        starts[low:high] = [first]
        ends[low:high] = [end]

    def __contains__(self, offset: int) -> bool:
        if offset < self.floor:
            return True
        index = bisect_right(self._starts, offset) - 1
        return index >= 0 and offset < self._ends[index]

    @property
    def end(self) -> int:
        """The offset after the highest one of the set."""
        return self._ends[-1] if self._ends else self.floor

    def first_missing(self, offset: int) -> int:
        """Return the lowest offset from *offset* upwards that is not in the set."""
        if offset < self.floor:
            return self.floor
        index = bisect_right(self._starts, offset) - 1
        return max(offset, self._ends[index]) if index >= 0 else offset

    def count_missing(self, first: int, end: int) -> int:
        """Return how many offsets from *first* to below *end* are not in the set."""
        missing = 0
        first = max(first, self.floor)
        for start, stop in zip(self._starts, self._ends, strict=True):
            if start >= end or first >= end:
                break
            missing += max(0, start - first)
            first = max(first, stop)
        return missing + max(0, end - first)

    def ranges(self) -> list[OffsetRange]:
        """Return the ranges above `floor`, ascending."""
        return list(zip(self._starts, self._ends, strict=True))


def runs(offsets: Sequence[int]) -> Iterator[OffsetRange]:
    """Return *offsets*, which ascend, as the fewest ranges that hold them and nothing else."""
    if isinstance(offsets, range) and offsets:
        yield offsets.start, offsets.stop
        return
    first = 0
    for index in range(1, len(offsets) + 1):
        if index == len(offsets) or offsets[index] != offsets[index - 1] + 1:
            yield offsets[first], offsets[index - 1] + 1
            first = index
