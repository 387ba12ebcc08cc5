"""An instance that says it is still at a message keeps it, up to its group's limit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from msgbroker.engine.lane.begun import Begun, Late
from msgbroker.engine.lane.extension import Extension
from msgbroker.engine.lane.flights import Flight, Flights
from msgbroker.engine.verdicts import Settled, Verdict
from tests.support.lane_builders import (
    ALL_BYTES,
    CONFIG,
    again_offsets,
    begin,
    extend,
    held,
    make_lane,
    persist,
    settle,
    take_all,
)

# Handed out at 0, an answer is due at 30.
HOUR = replace(CONFIG, handle_seconds_max=3_600.0)


def test_what_is_extended_is_not_taken_back_and_its_neighbours_are() -> None:
    lane = make_lane(fed=4, config=HOUR)
    take_all(lane)

    assert extend(lane, "a", 1, 2, 1, 10.0, 30.0) == 2
    assert lane.expire(30.0) == {"a": 2}
    assert lane.expire(39.9) == {}
    assert settle(lane, "a", Verdict.ACK, 1, 2, 1, 39.9) == Settled(2, 0)


def test_what_is_not_extended_again_has_failed() -> None:
    lane = make_lane(fed=1, config=HOUR)
    take_all(lane)
    extend(lane, "a", 0, 0, 1, 10.0, 30.0)

    assert lane.late_and_begun(39.9) == []
    assert lane.late_and_begun(40.0) == [Late("a", 0, 1)]
    assert lane.expire(40.0) == {"a": 1}
    assert again_offsets(take_all(lane, now=50.0)) == [(0, 2)]


def test_an_extension_never_shortens() -> None:
    lane = make_lane(fed=1, config=HOUR)
    take_all(lane)

    extend(lane, "a", 0, 0, 1, 1.0, 300.0)
    extend(lane, "a", 0, 0, 1, 2.0, 1.0)

    assert lane.expire(300.9) == {}
    assert lane.expire(301.0) == {"a": 1}


def test_extensions_end_at_the_limit_from_the_first_one_on() -> None:
    lane = make_lane(fed=1, config=replace(CONFIG, handle_seconds_max=100.0))
    take_all(lane)

    for now in range(10, 140, 10):
        extend(lane, "a", 0, 0, 1, float(now), 30.0)
        lane.expire(float(now))

    assert lane.in_flight_count == 0, "10 + 100 have passed"


def test_without_a_limit_nothing_is_extended_and_what_is_named_is_begun() -> None:
    lane = make_lane(fed=2, config=replace(CONFIG, handle_seconds_max=0.0))
    lane.take("a", 2, ALL_BYTES, 0.0, begun=Begun.NO)

    assert extend(lane, "a", 0, 0, 1, 10.0, 30.0) == 0
    assert not lane.has_extended
    assert lane.counters.extended == 0

    assert lane.late_and_begun(30.0) == [Late("a", 0, 1)]
    assert lane.expire(30.0) == {"a": 2}


def test_a_second_attempt_is_extended_like_the_first() -> None:
    lane = make_lane(fed=1, config=HOUR)
    take_all(lane)
    settle(lane, "a", Verdict.RETRY, 0, 0, 1, 0.0, 0.0)
    take_all(lane, now=1.0)

    assert extend(lane, "a", 0, 0, 1, 10.0, 30.0) == 0, "that attempt is over"
    assert extend(lane, "a", 0, 0, 2, 10.0, 30.0) == 1
    assert lane.expire(39.9) == {}
    assert lane.expire(40.0) == {"a": 1}


@pytest.mark.parametrize("said", ["other instance", "other epoch", "settled"])
def test_what_an_instance_does_not_have_is_not_extended(said: str) -> None:
    lane = make_lane(fed=1, config=HOUR)
    take_all(lane)
    if said == "settled":
        settle(lane, "a", Verdict.ACK, 0, 0, 1, 0.0)

    instance_id = "b" if said == "other instance" else "a"
    epoch = lane.epoch + (said == "other epoch")

    assert lane.extend(instance_id, held(0, 0, epoch=epoch), 30.0, 10.0) == 0
    assert lane.counters.extended == 0


def test_what_was_extended_and_then_given_a_row_keeps_its_time() -> None:
    lane = make_lane(fed=10, config=replace(HOUR, window_max=10, redeliveries_max=20))
    take_all(lane)
    extend(lane, "a", 0, 0, 1, 1.0, 300.0)
    settle(lane, "a", Verdict.ACK, 1, 9, 1, 2.0)
    assert [row.queue_offset for row in persist(lane).redeliveries] == [0]

    assert lane.expire(300.0) == {}
    assert lane.has_extended
    assert lane.expire(301.0) == {"a": 1}


def test_a_stopped_lane_extends_nothing_and_what_was_extended_does_not_pay() -> None:
    lane = make_lane(fed=2, config=HOUR)
    take_all(lane)
    begin(lane, "a", 1, 1, 1)
    extend(lane, "a", 0, 0, 1, 10.0, 30.0)
    lane.stop()

    assert extend(lane, "a", 0, 0, 1, 20.0, 30.0) == 0
    assert lane.expire(40.0) == {"a": 2}
    assert lane.is_drained
    assert [(row.queue_offset, row.attempt) for row in persist(lane).redeliveries] == [(1, 2)]


def test_what_a_stopped_lane_was_asked_in_vain_to_extend_does_not_pay() -> None:
    lane = make_lane(fed=2, config=HOUR)
    take_all(lane)
    begin(lane, "a", 0, 1, 1)
    lane.stop()

    assert extend(lane, "a", 0, 0, 1, 10.0, 300.0) == 0
    assert lane.expire(30.0) == {"a": 2}, "no later than it would have been"
    assert [(row.queue_offset, row.attempt) for row in persist(lane).redeliveries] == [(1, 2)]


def test_a_lane_knows_whether_anything_of_it_is_extended() -> None:
    lane = make_lane(fed=2, config=HOUR)
    take_all(lane)
    known = [lane.has_extended]

    extend(lane, "a", 0, 0, 1, 10.0, 30.0)
    known.append(lane.has_extended)
    settle(lane, "a", Verdict.ACK, 0, 0, 1, 11.0)

    assert [*known, lane.has_extended] == [False, True, False]


def test_flights_that_are_extended_as_a_whole_are_not_made_anew() -> None:
    # There may be a flight for each of ten thousand messages, and a request may extend all of them again and again.
    flights = Flights()
    for offset in range(3):
        flights.add(Flight("a", [offset], [0], [""], handed_at=0.0, deadline=30.0, begun=Begun.NO, place=offset))
    before = flights.of_instance("a")

    assert flights.extend("a", 0, 3, Extension(10.0, 30.0, 3_600.0)) == 3

    assert all(after is flight for after, flight in zip(flights.of_instance("a"), before, strict=True))
    assert [(flight.begun, flight.deadline) for flight in before] == [(Begun.YES, 40.0)] * 3


def test_a_lane_that_is_held_back_hands_out_nothing_and_still_extends_and_settles_until_it_goes_on() -> None:
    lane = make_lane(fed=3, config=HOUR)
    lane.take("a", 2, ALL_BYTES, 0.0)
    settle(lane, "a", Verdict.RETRY, 0, 0, 1, 0.0, 0.0)

    lane.hold_back()
    assert (lane.wants(), lane.due(1.0, 10), lane.take("a", 10, ALL_BYTES, 1.0).count) == (0, [], 0)
    assert extend(lane, "a", 1, 1, 1, 1.0, 300.0) == 1
    assert settle(lane, "a", Verdict.ACK, 1, 1, 1, 2.0) == Settled(1, 0)

    lane.go_on()
    assert (again_offsets(take_all(lane, now=3.0)), lane.wants() > 0) == ([(0, 2)], True)
