"""What a reset does to a lane, worked out, is what it does message by message."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from msgdb.lanes.records import OffsetRange
from msgdb.lanes.resets import LanePlace, effect_of, skipped_by

END = 24


@st.composite
def places(draw: st.DrawFn) -> LanePlace:
    acked = draw(st.integers(0, END))
    # Settled above the cursor; what waits may lie below it or above, and is never settled.
    above = sorted(draw(st.sets(st.integers(acked + 1, END + 1), max_size=8)))
    settled = {offset for offset in above if offset < END}
    ranges = ranges_of(sorted(settled))
    waiting = draw(st.sets(st.integers(0, END - 1), max_size=8)) - settled
    return LanePlace(acked, ranges, sorted(waiting))


def ranges_of(offsets: Sequence[int]) -> list[OffsetRange]:
    ranges: list[OffsetRange] = []
    for offset in offsets:
        if ranges and ranges[-1][1] == offset:
            ranges[-1] = (ranges[-1][0], offset + 1)
        else:
            ranges.append((offset, offset + 1))
    return ranges


def offsets_of(ranges: Sequence[OffsetRange]) -> list[int]:
    return [offset for first, end in ranges for offset in range(first, end)]


def settled_of(place: LanePlace) -> set[int]:
    below = set(range(place.acked_offset)) - set(place.waiting)
    return below | set(offsets_of(place.acked_ranges))


def after(place: LanePlace, to_offset: int) -> LanePlace:
    """Return where the lane is afterwards, message by message."""
    if to_offset >= place.acked_offset:
        settled = {offset for offset in offsets_of(place.acked_ranges) if offset >= to_offset}
        waiting = [offset for offset in place.waiting if offset >= to_offset]
    else:
        settled = set()
        waiting = [offset for offset in place.waiting if offset < to_offset]
    return LanePlace(to_offset, ranges_of(sorted(settled)), waiting)


@given(places(), st.integers(0, END))
def test_what_is_skipped_and_what_comes_again_is_what_changes(place: LanePlace, to_offset: int) -> None:
    effect = effect_of(place, to_offset)
    done, later = settled_of(place), settled_of(after(place, to_offset))

    skipped = later - done
    assert sorted([*offsets_of(effect.skipped), *skipped_waiting(place, to_offset)]) == sorted(skipped)
    assert effect.skipped_waiting == len(skipped_waiting(place, to_offset))
    assert offsets_of(effect.again) == sorted(done - later)
    assert effect.anew == len(set(place.waiting) - set(after(place, to_offset).waiting)) - effect.skipped_waiting


def skipped_waiting(place: LanePlace, to_offset: int) -> list[int]:
    return [offset for offset in place.waiting if offset < to_offset] if to_offset >= place.acked_offset else []


def test_a_lane_that_stays_where_it_is_lets_go_of_what_waits_below() -> None:
    effect = effect_of(LanePlace(10, [(12, 14)], [3, 11]), 10)

    assert effect == ([], 1, [], 0)


def test_a_lane_that_goes_back_begins_anew_with_what_waits_from_there_on() -> None:
    effect = effect_of(LanePlace(10, [(12, 14)], [3, 8, 11]), 6)

    assert effect == ([], 0, [(6, 8), (9, 10), (12, 14)], 2)


@given(places(), st.integers(0, END))
def test_all_that_is_not_settled_below_the_new_place_is_skipped(place: LanePlace, to_offset: int) -> None:
    skipped = skipped_by(place, to_offset)

    goes_back = to_offset < place.acked_offset
    unsettled = set() if goes_back else set(range(to_offset)) - settled_of(place)
    assert offsets_of(skipped) == sorted(unsettled)
    assert skipped == ranges_of(sorted(unsettled))
