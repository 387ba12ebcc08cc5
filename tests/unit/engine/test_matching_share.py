"""Which share of what is read matches, as a lane learns it."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgbroker.engine.matching_share import REMEMBERED, MatchingMeter, asked_of
from msgdb.lanes.records import NOTHING_LEARNT, MatchingShare
from tests.support.lane_builders import make_subscription

_READ = st.integers(1, 30_000).flatmap(lambda read: st.tuples(st.just(read), st.integers(0, read)))


def learn(meter: MatchingMeter, read: int, matched: int, denied: int = 0) -> MatchingShare:
    meter.read += read
    meter.matched += matched
    return meter.share(denied)


@given(batches=st.lists(_READ, min_size=1, max_size=20))
def test_it_lies_between_the_least_and_the_greatest_share_that_was_read(batches: list[tuple[int, int]]) -> None:
    meter = MatchingMeter(NOTHING_LEARNT)
    for read, matched in batches:
        learnt = learn(meter, read, matched)

    shares = [matched / read for read, matched in batches]
    assert min(shares) - 1e-9 <= learnt.share <= max(shares) + 1e-9
    assert learnt.read == pytest.approx(REMEMBERED * (1 - math.exp(-sum(read for read, _ in batches) / REMEMBERED)))


@given(earlier=_READ, times=st.integers(1, 200), matched=st.integers(0, 5))
def test_how_often_it_is_asked_for_makes_no_difference(earlier: tuple[int, int], times: int, matched: int) -> None:
    often, once = MatchingMeter(NOTHING_LEARNT), MatchingMeter(NOTHING_LEARNT)
    for meter in (often, once):
        learn(meter, *earlier)
    for _ in range(times):
        by_and_by = learn(often, 5, matched)

    at_once = learn(once, 5 * times, matched * times)

    assert by_and_by.share == pytest.approx(at_once.share)
    assert by_and_by.read == pytest.approx(at_once.read)


@given(batches=st.lists(_READ, min_size=1, max_size=20))
def test_the_next_owner_goes_on_where_the_last_one_was(batches: list[tuple[int, int]]) -> None:
    meter, handed = MatchingMeter(NOTHING_LEARNT), NOTHING_LEARNT
    for read, matched in batches:
        learnt = learn(meter, read, matched)
        handed = learn(MatchingMeter(handed), read, matched)

    assert tuple(handed) == pytest.approx(tuple(learnt))


def test_what_was_read_long_ago_is_forgotten() -> None:
    meter = MatchingMeter(NOTHING_LEARNT)
    assert learn(meter, 20_000, 20_000).share == 1.0

    assert learn(meter, 50_000, 0).share < 0.01


@given(steps=st.lists(st.tuples(_READ, st.integers(0, 100)), min_size=1, max_size=20))
def test_whatever_is_denied_it_is_a_share(steps: list[tuple[tuple[int, int], int]]) -> None:
    meter, denied_in_all = MatchingMeter(NOTHING_LEARNT), 0
    for (read, matched), denied in steps:
        denied_in_all += denied
        assert 0.0 <= learn(meter, read, matched, denied_in_all).share <= 1.0


def test_what_the_group_may_not_see_does_not_match() -> None:
    meter = MatchingMeter(NOTHING_LEARNT)
    assert learn(meter, 100, 100, 100).share == 0.0
    assert learn(meter, 100, 50, 100).share == pytest.approx(0.25, rel=0.01)

    # Some of it waited for an instance until it was denied.
    assert learn(meter, 0, 0, 125).share == pytest.approx(0.125, rel=0.02)


def test_of_what_is_asked_for_now_it_learns_anew_and_of_the_same_it_goes_on() -> None:
    meter = MatchingMeter(NOTHING_LEARNT)
    meter.ask(8)
    learnt = learn(meter, 100, 10)
    assert learnt == pytest.approx(MatchingShare(8, 0.1, 100.0), rel=0.01)

    meter.ask(8)
    assert meter.share(0) == learnt
    meter.read, meter.matched = 5, 5
    meter.ask(9)
    assert meter.share(0) == MatchingShare(9, 0.0, 0.0)
    assert learn(meter, 100, 50).share == pytest.approx(0.5)


def test_what_is_asked_for_has_a_number_of_its_own() -> None:
    paid, sent = make_subscription("EC_PAID"), make_subscription("EC_SENT")
    asked = asked_of([paid, sent], 1)

    alike = [
        [sent, paid],
        [paid, sent, paid, make_subscription("EC_PAID", topic_id=2)],
        [dataclasses.replace(paid, subscription_id=9, start_offsets={3: 5}, paused=True), sent],
    ]
    assert {asked_of(each, 1) for each in alike} == {asked}
    header = make_subscription("EC_PAID", lambda _: True)
    others = [[], [paid], [paid, header], [header], [dataclasses.replace(header, expression="another")]]
    assert len({asked, *(asked_of(each, 1) for each in others)}) == 6
    # The same at each broker, and at the next version of it.
    assert asked_of([paid], 1) == 5_821_200_627_105_936_055
