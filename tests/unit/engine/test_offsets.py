"""The set of settled offsets, against a plain set."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from msgbroker.engine.offsets import SettledOffsets

_HIGHEST = 40
_RANGES = st.lists(st.tuples(st.integers(0, _HIGHEST), st.integers(0, 8)), max_size=30)


@given(floor=st.integers(0, 10), added=_RANGES, asked=st.tuples(st.integers(0, 60), st.integers(0, 60)))
def test_it_agrees_with_a_plain_set(floor: int, added: list[tuple[int, int]], asked: tuple[int, int]) -> None:
    settled = SettledOffsets(floor)
    model = set(range(floor))
    for first, length in added:
        settled.add(first, first + length)
        model |= set(range(first, first + length))

    universe = range(_HIGHEST + 60)
    assert [offset for offset in universe if offset in settled] == sorted(model)
    assert settled.floor == next(offset for offset in universe if offset not in model)
    assert settled.end == max(model, default=-1) + 1
    first, end = asked
    assert settled.count_missing(first, end) == len([o for o in range(first, end) if o not in model])
    assert settled.first_missing(first) == next(o for o in range(first, 200) if o not in model)


@given(added=_RANGES)
def test_its_ranges_are_ascending_and_do_not_touch(added: list[tuple[int, int]]) -> None:
    settled = SettledOffsets(0)
    for first, length in added:
        settled.add(first, first + length)

    bounds = [settled.floor, *(bound for pair in settled.ranges() for bound in pair)]
    assert all(low < high for low, high in pairwise(bounds))
