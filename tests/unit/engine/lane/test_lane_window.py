"""The bounds of a lane: its window, and its redeliveries."""

from __future__ import annotations

from dataclasses import replace

from msgbroker.engine.lane.lane import Lane
from msgbroker.engine.verdicts import Settled, Verdict
from tests.support.lane_builders import (
    ALL_BYTES,
    CONFIG,
    FakeMessage,
    again_offsets,
    fetch_due,
    make_lane,
    messages,
    persist,
    settle,
    take_all,
)

NARROW = replace(CONFIG, window_max=10, redeliveries_max=20)


def make_stuck_lane() -> Lane[FakeMessage]:
    """Return a lane whose window is full, with a stalled instance holding offset 0 and 1."""
    lane = make_lane(fed=10, config=NARROW)
    lane.take("stalled", 2, ALL_BYTES, 0.0)
    take_all(lane, "a")
    return lane


def test_a_lane_wants_no_more_than_its_window_holds() -> None:
    lane = make_lane(config=NARROW)
    assert lane.wants() == 10

    lane.feed(0, 4, messages(0, 4))
    assert lane.wants() == 6
    lane.feed(4, 10, messages(4, 10))
    assert lane.wants() == 0


def test_what_does_not_match_takes_no_room() -> None:
    lane = make_lane(config=NARROW)

    lane.feed(0, 1_000, [])

    assert lane.wants() == 10


def test_a_window_full_of_busy_messages_writes_nothing_down() -> None:
    lane = make_stuck_lane()

    settle(lane, "a", Verdict.ACK, 2, 4, 1, 0.0)

    assert (lane.wants(), lane.acked_offset) == (0, 0)
    assert persist(lane).redeliveries == []


def test_stragglers_of_a_mostly_settled_window_are_parked_and_the_cursor_moves_on() -> None:
    lane = make_stuck_lane()

    settle(lane, "a", Verdict.ACK, 2, 9, 1, 5.0)

    assert (lane.wants(), lane.acked_offset, lane.in_flight_count) == (10, 10, 2)
    assert lane.unsettled_by_instance == {"stalled": 2}
    checkpoint = persist(lane, now=5.0)
    assert checkpoint.acked_offset == 10
    assert [(u.queue_offset, u.attempt, u.due_in_seconds) for u in checkpoint.redeliveries] == [
        (0, 1, 25.0),
        (1, 1, 25.0),
    ]


def test_a_parked_message_can_still_be_acknowledged() -> None:
    lane = make_stuck_lane()
    settle(lane, "a", Verdict.ACK, 2, 9, 1, 0.0)
    persist(lane)

    assert settle(lane, "stalled", Verdict.ACK, 0, 0, 1, 6.0) == Settled(1, 0)

    assert persist(lane).redelivered == [0]
    assert lane.redelivery_count == 1


def test_a_parked_message_that_fails_updates_its_row() -> None:
    lane = make_stuck_lane()
    settle(lane, "a", Verdict.ACK, 2, 9, 1, 0.0)
    persist(lane)

    settle(lane, "stalled", Verdict.RETRY, 0, 0, 1, 6.0)

    [upsert] = persist(lane, now=6.0).redeliveries
    assert (upsert.queue_offset, upsert.attempt, upsert.due_in_seconds) == (0, 2, 10.0)


def test_a_parked_message_times_out_like_any_other() -> None:
    lane = make_stuck_lane()
    settle(lane, "a", Verdict.ACK, 2, 9, 1, 0.0)
    assert lane.next_wakeup() == 30.0

    assert lane.expire(30.0) == {"stalled": 2}

    assert lane.redelivery_count == 2
    assert again_offsets(take_all(lane, "a", now=40.0)) == [(0, 2), (1, 2)]


def test_what_was_given_back_and_waits_for_an_instance_is_parked_too() -> None:
    lane = make_stuck_lane()
    settle(lane, "stalled", Verdict.RELEASE, 0, 0, 1, 0.0)

    settle(lane, "a", Verdict.ACK, 2, 9, 1, 0.0)

    assert lane.acked_offset == 10
    checkpoint = persist(lane)
    assert [(u.queue_offset, u.due_in_seconds) for u in checkpoint.redeliveries] == [(0, 0.0), (1, 30.0)]
    assert again_offsets(take_all(lane)) == [(0, 1)]


def test_what_was_given_back_and_is_in_flight_again_is_parked_until_its_new_deadline() -> None:
    lane = make_stuck_lane()
    settle(lane, "stalled", Verdict.RELEASE, 0, 0, 1, 0.0)
    fetch_due(lane, 4.0)
    lane.take("stalled", 1, ALL_BYTES, 4.0)

    settle(lane, "a", Verdict.ACK, 2, 9, 1, 5.0)

    assert [(u.queue_offset, u.due_in_seconds) for u in persist(lane, now=5.0).redeliveries] == [(0, 29.0), (1, 25.0)]


def test_a_message_nobody_has_taken_yet_is_not_parked() -> None:
    lane = make_lane(config=NARROW, acked_ranges=[(1, 10)])
    lane.feed(0, 1, messages(0, 1))

    assert (lane.wants(), lane.acked_offset, lane.redelivery_count) == (0, 0, 0)
    take_all(lane)
    settle(lane, "a", Verdict.ACK, 0, 0, 1, 0.0)
    assert lane.wants() == 10


def test_a_lane_with_as_many_redeliveries_as_it_may_have_stops_reading_and_raises_an_alarm() -> None:
    lane = make_lane(fed=4, config=replace(CONFIG, redeliveries_max=4))
    take_all(lane)
    assert (lane.wants(), lane.has_redeliveries_full) == (0, False), "all four may yet fail"

    settle(lane, "a", Verdict.RETRY, 0, 3, 1, 0.0)
    assert (lane.wants(), lane.has_redeliveries_full) == (0, True)

    take_all(lane, now=10.0)
    settle(lane, "a", Verdict.ACK, 0, 2, 2, 10.0)
    assert (lane.wants(), lane.has_redeliveries_full) == (3, False)


def test_a_flight_is_answered_in_any_pieces() -> None:
    lane = make_lane(fed=9)
    take_all(lane)

    for first, last in [(4, 4), (0, 0), (7, 8), (1, 3), (5, 6)]:
        assert settle(lane, "a", Verdict.ACK, first, last, 1, 0.0) == Settled(last - first + 1, 0)

    assert (lane.acked_offset, lane.in_flight_count, lane.unsettled_by_instance) == (9, 0, {})


def test_a_range_settles_only_what_its_instance_has() -> None:
    lane = make_lane(fed=9)
    for instance_id in "abc":
        lane.take(instance_id, 3, ALL_BYTES, 0.0)

    assert settle(lane, "b", Verdict.ACK, 2, 7, 1, 0.0) == Settled(3, 3)

    assert lane.unsettled_by_instance == {"a": 3, "c": 3}
    assert persist(lane).acked_ranges == [(3, 6)]


def test_a_long_range_finds_the_redeliveries_in_it() -> None:
    lane = make_lane(fed=100)
    take_all(lane)
    settle(lane, "a", Verdict.RELEASE, 10, 12, 1, 0.0)
    take_all(lane)

    assert settle(lane, "a", Verdict.ACK, 0, 99, 1, 0.0) == Settled(100, 0)
    assert lane.acked_offset == 100


def test_the_rest_of_a_queue_that_was_dropped_is_passed_over() -> None:
    lane = make_lane(fed=2)

    lane.feed(7, 7, (), days_dropped=True)

    assert (lane.next_offset, lane.counters.expired) == (7, 5)
