"""What was handed out and never written to its instance: no attempt, and no delivery."""

from __future__ import annotations

from msgbroker.engine.lane.config import Again, Handout, LaneConfig
from msgbroker.engine.retry import RetryPolicy
from msgbroker.engine.verdicts import Verdict
from tests.support.lane_builders import (
    ALL_BYTES,
    FakeMessage,
    make_lane,
    messages,
    settle,
    take_all,
)


def test_what_was_withdrawn_comes_again_at_once_as_the_same_attempt() -> None:
    lane = make_lane(5)
    handout = take_all(lane)
    assert lane.withdraw("a", handout.handed, 1.0) == 5
    again = take_all(lane, "b", 1.0)

    assert [(each.message.queue_offset, each.attempt) for each in again.again] == [(n, 1) for n in range(5)]
    assert (lane.counters.withdrawn, lane.counters.handed_out, lane.counters.timed_out) == (5, 5, 0)
    assert dict(lane.unsettled_by_instance) == {"b": 5}


def test_a_later_attempt_that_was_withdrawn_keeps_its_number() -> None:
    lane = make_lane(1)
    take_all(lane)
    settle(lane, "a", Verdict.RETRY, 0, 0, 1, 0.0, 0.0)
    second = take_all(lane)
    lane.withdraw("a", second.handed, 0.0)
    (again,) = take_all(lane).again

    assert (again.attempt, lane.counters.handed_out, lane.counters.redelivered) == (2, 2, 1)


def test_only_what_the_instance_still_has_is_withdrawn() -> None:
    lane = make_lane(6)
    handout = take_all(lane)
    settle(lane, "a", Verdict.ACK, 0, 1, 1, 0.0)
    assert lane.withdraw("b", handout.handed, 0.0) == 0
    assert lane.withdraw("a", handout.handed, 0.0) == 4
    assert lane.withdraw("a", handout.handed, 0.0) == 0


def test_what_others_have_between_the_messages_of_a_hand_out_is_left_alone() -> None:
    lane = make_lane()
    lane.feed(0, 5, [FakeMessage(0), FakeMessage(2), FakeMessage(4)])
    first = lane.take("a", 1, ALL_BYTES, 0.0)
    settle(lane, "a", Verdict.RELEASE, 0, 0, 1, 0.0)
    unwritten = lane.take("a", 10, ALL_BYTES, 0.0)
    take_all(lane)
    assert [message.queue_offset for message in first.fresh] == [0]
    assert lane.withdraw("a", unwritten.handed, 0.0) == 2

    assert lane.in_flight_count == 1


def test_what_was_parked_is_withdrawn_as_well() -> None:
    lane = make_lane(4, config=LaneConfig(30.0, RetryPolicy((10.0,), 2), window_max=4))
    handout = take_all(lane)
    settle(lane, "a", Verdict.ACK, 1, 3, 1, 0.0)
    lane.feed(4, 5, messages(4, 5))
    assert lane.redelivery_count == 1
    assert lane.withdraw("a", handout.handed, 0.0) == 1
    (again,) = take_all(lane, "b").again

    assert (again.message.queue_offset, again.attempt) == (0, 1)


def test_what_is_denied_before_it_was_written_is_settled_without_delivery() -> None:
    lane = make_lane(4)
    handout = take_all(lane)
    denied = Handout(fresh=[handout.fresh[1], handout.fresh[3]])
    assert lane.deny("a", denied.handed) == 2
    settle(lane, "a", Verdict.ACK, 0, 3, 1, 0.0)

    assert lane.acked_offset == 4
    assert (lane.counters.denied, lane.counters.handed_out, lane.counters.settled) == (2, 2, 2)


def test_a_message_that_comes_again_is_denied_before_it_was_written() -> None:
    lane = make_lane(1)
    take_all(lane)
    settle(lane, "a", Verdict.RETRY, 0, 0, 1, 0.0, 0.0)
    (again,) = take_all(lane).again
    assert lane.deny("a", Handout(again=[Again(again.message, again.attempt)]).handed) == 1

    assert (lane.acked_offset, lane.redelivery_count, lane.in_flight_count) == (1, 0, 0)


def test_a_hand_out_says_when_the_lane_takes_it_back() -> None:
    lane = make_lane(1)
    handout = take_all(lane, now=7.0)

    assert handout.deadline == lane.next_wakeup() == 37.0
    assert not lane.expire(36.9)
    assert lane.expire(37.0) == {"a": 1}


def test_a_stopped_lane_is_drained_once_what_was_not_written_is_withdrawn() -> None:
    lane = make_lane(3)
    handout = take_all(lane)
    lane.stop()
    assert not lane.is_drained
    lane.withdraw("a", handout.handed, 0.0)

    assert lane.is_drained
