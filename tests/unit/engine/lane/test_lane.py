"""Hand-outs and verdicts of one lane."""

from __future__ import annotations

import pytest

from msgbroker.engine.lane.config import LaneConfig
from msgbroker.engine.retry import RetryPolicy
from msgbroker.engine.verdicts import Settled, Settlement, Verdict
from msgdb.lanes.records import RedeliveryRow
from tests.support.lane_builders import (
    ALL_BYTES,
    CONFIG,
    FakeMessage,
    again_offsets,
    begin,
    begin_all,
    fetch_due,
    fresh_offsets,
    held,
    make_lane,
    messages,
    persist,
    settle,
    stored_at_us,
    take_all,
)


def test_what_is_fed_is_handed_out_once_in_the_order_of_the_queue() -> None:
    lane = make_lane(fed=5)

    assert fresh_offsets(lane.take("a", 2, ALL_BYTES, 0.0)) == [0, 1]
    assert fresh_offsets(lane.take("b", 9, ALL_BYTES, 0.0)) == [2, 3, 4]
    assert lane.take("a", 9, ALL_BYTES, 0.0).count == 0


def test_a_handout_keeps_to_the_bytes_allowed() -> None:
    lane = make_lane(fed=5)

    assert fresh_offsets(lane.take("a", 9, 250, 0.0)) == [0, 1]
    assert fresh_offsets(lane.take("a", 9, 300, 0.0)) == [2, 3, 4]


def test_one_message_is_handed_out_even_if_it_is_over_the_bytes_allowed() -> None:
    lane = make_lane(fed=2)

    assert fresh_offsets(lane.take("a", 9, 1, 0.0)) == [0]


def test_an_instance_without_credit_gets_nothing() -> None:
    assert make_lane(fed=2).take("a", 0, ALL_BYTES, 0.0).count == 0


def test_an_acknowledged_message_is_passed_by_the_cursor() -> None:
    lane = make_lane(fed=4)
    take_all(lane)

    assert settle(lane, "a", Verdict.ACK, 0, 1, 1, 0.0) == Settled(2, 0)

    checkpoint = persist(lane)
    assert (checkpoint.acked_offset, checkpoint.acked_ranges) == (2, [])


def test_messages_acknowledged_out_of_order_are_ranges_above_the_cursor() -> None:
    lane = make_lane(fed=6)
    take_all(lane)

    settle(lane, "a", Verdict.ACK, 1, 2, 1, 0.0)
    settle(lane, "a", Verdict.ACK, 4, 4, 1, 0.0)

    checkpoint = persist(lane)
    assert (checkpoint.acked_offset, checkpoint.acked_ranges) == (0, [(1, 3), (4, 5)])


def test_what_does_not_match_is_settled() -> None:
    lane = make_lane()

    lane.feed(0, 6, [FakeMessage(2), FakeMessage(4)])

    assert fresh_offsets(take_all(lane)) == [2, 4]
    checkpoint = persist(lane)
    assert (checkpoint.acked_offset, checkpoint.acked_ranges) == (2, [(3, 4), (5, 6)])


def test_a_range_over_holes_settles_the_messages_in_it() -> None:
    lane = make_lane()
    lane.feed(0, 6, [FakeMessage(2), FakeMessage(4)])
    take_all(lane)

    assert settle(lane, "a", Verdict.ACK, 2, 4, 1, 0.0) == Settled(2, 1)

    assert lane.acked_offset == 6


@pytest.mark.parametrize(
    "instance_id, first, attempt, epoch",
    [("b", 0, 1, 1), ("a", 1, 1, 1), ("a", 0, 2, 1), ("a", 0, 1, 2)],
    ids=["another instance", "another message", "another attempt", "another epoch"],
)
def test_a_verdict_on_something_else_is_stale(instance_id: str, first: int, attempt: int, epoch: int) -> None:
    lane = make_lane(fed=2)
    lane.take("a", 1, ALL_BYTES, 0.0)

    assert lane.settle(instance_id, Settlement(held(first, first, attempt, epoch=epoch), Verdict.ACK), 0.0) == Settled(
        0, 1
    )

    assert lane.in_flight_count == 1
    assert lane.counters.stale == 1


def test_a_verdict_on_offsets_never_read_is_stale() -> None:
    assert settle(make_lane(fed=1), "a", Verdict.ACK, 5, 1 << 62, 1, 0.0) == Settled(0, 1)


def test_a_second_verdict_is_stale() -> None:
    lane = make_lane(fed=1)
    take_all(lane)
    settle(lane, "a", Verdict.ACK, 0, 0, 1, 0.0)

    assert settle(lane, "a", Verdict.RETRY, 0, 0, 1, 0.0) == Settled(0, 1)


def test_a_failed_message_comes_again_after_the_schedule() -> None:
    lane = make_lane(fed=2)
    take_all(lane)

    settle(lane, "a", Verdict.RETRY, 1, 1, 1, now=5.0, error="boom")

    assert lane.due(14.9, 10) == []
    assert lane.next_wakeup() == 15.0
    assert lane.due(15.0, 10) == [(1, stored_at_us(1))]
    lane.feed_again([FakeMessage(1)], [])
    assert again_offsets(lane.take("b", 9, ALL_BYTES, 15.0)) == [(1, 2)]


def test_a_failed_message_comes_again_after_the_delay_it_was_given() -> None:
    lane = make_lane(fed=1)
    take_all(lane)

    settle(lane, "a", Verdict.RETRY, 0, 0, 1, now=0.0, delay_seconds=0.0)

    assert again_offsets(take_all(lane)) == [(0, 2)]


def test_a_failed_message_is_a_redelivery_in_the_checkpoint_that_lets_the_cursor_pass_it() -> None:
    lane = make_lane(fed=2)
    take_all(lane)
    settle(lane, "a", Verdict.RETRY, 0, 0, 1, now=5.0, error="boom")
    settle(lane, "a", Verdict.ACK, 1, 1, 1, now=5.0)

    checkpoint = persist(lane, now=7.0)

    assert checkpoint.acked_offset == 2
    [row] = checkpoint.redeliveries
    assert (row.queue_offset, row.stored_at_us, row.attempt) == (0, stored_at_us(0), 2)
    assert (row.due_in_seconds, row.last_error) == (8.0, "boom")


def test_the_last_attempt_ends_as_a_dead_letter() -> None:
    lane = make_lane(fed=1)
    for attempt, now in [(1, 0.0), (2, 10.0), (3, 30.0)]:
        assert take_all(lane, now=now).count == 1
        settle(lane, "a", Verdict.RETRY, 0, 0, attempt, now=now, error=f"boom {attempt}")

    checkpoint = persist(lane, now=30.0)
    [move] = checkpoint.dead_letters
    assert (move.attempts, move.reason, move.last_error) == (3, "ATTEMPTS_EXHAUSTED", "boom 3")
    assert not move.had_row
    assert (checkpoint.redeliveries, checkpoint.redelivered, checkpoint.acked_offset) == ([], [], 1)
    assert fetch_due(lane, 1e9) == []


def test_the_end_of_the_schedule_is_the_last_attempt() -> None:
    lane = make_lane(fed=1, config=LaneConfig(retry=RetryPolicy((), attempts_max=9)))
    take_all(lane)

    settle(lane, "a", Verdict.RETRY, 0, 0, 1, now=0.0, delay_seconds=5.0)

    assert lane.counters.dead_lettered == 1


def test_a_rejected_message_is_a_dead_letter_at_once() -> None:
    lane = make_lane(fed=1)
    take_all(lane)

    settle(lane, "a", Verdict.REJECT, 0, 0, 1, now=0.0, error="not JSON")

    [move] = persist(lane).dead_letters
    assert (move.queue_offset, move.attempts, move.reason, move.last_error) == (0, 1, "REJECTED", "not JSON")


def test_a_message_that_cannot_be_read_is_a_dead_letter_that_says_so() -> None:
    lane = make_lane(fed=1)
    take_all(lane)

    assert settle(lane, "a", Verdict.UNREADABLE, 0, 0, 1, now=0.0, error="not JSON") == Settled(1, 0)

    [move] = persist(lane).dead_letters
    assert (move.queue_offset, move.attempts, move.reason, move.last_error) == (0, 1, "UNREADABLE_BODY", "not JSON")


def test_a_released_message_comes_again_at_once_and_the_attempt_does_not_count() -> None:
    lane = make_lane(fed=3)
    take_all(lane)

    settle(lane, "a", Verdict.RELEASE, 1, 1, 1, now=0.0)

    assert lane.acked_offset == 0
    assert again_offsets(take_all(lane, "b")) == [(1, 1)]
    assert settle(lane, "b", Verdict.ACK, 1, 1, 1, now=0.0) == Settled(1, 0)
    settle(lane, "a", Verdict.ACK, 0, 2, 1, now=0.0)
    checkpoint = persist(lane)
    assert (checkpoint.acked_offset, checkpoint.redeliveries, checkpoint.redelivered) == (3, [], [])


def test_a_message_released_with_a_delay_is_a_redelivery_of_the_same_attempt() -> None:
    lane = make_lane(fed=1)
    take_all(lane)

    settle(lane, "a", Verdict.RELEASE, 0, 0, 1, now=0.0, delay_seconds=4.0)

    [row] = persist(lane).redeliveries
    assert (row.attempt, row.due_in_seconds) == (1, 4.0)
    assert again_offsets(take_all(lane, now=4.0)) == [(0, 1)]


def test_a_message_not_answered_in_time_fails_that_attempt() -> None:
    lane = make_lane(fed=2)
    take_all(lane)
    settle(lane, "a", Verdict.ACK, 1, 1, 1, now=1.0)

    assert lane.expire(29.9) == {}
    assert lane.next_wakeup() == 30.0
    assert lane.expire(30.0) == {"a": 1}

    assert lane.unsettled_by_instance == {}
    assert settle(lane, "a", Verdict.ACK, 0, 0, 1, now=30.0) == Settled(0, 1)
    assert again_offsets(take_all(lane, "b", now=40.0)) == [(0, 2)]
    assert lane.expire(70.0) == {"b": 1}
    [row] = persist(lane, now=70.0).redeliveries
    assert (row.attempt, row.due_in_seconds, row.last_error) == (3, 20.0, "ack timeout: no answer within 30 s")


def test_what_an_instance_held_returns_at_once_when_its_stream_ends_and_counts_if_it_was_begun() -> None:
    lane = make_lane(fed=4)
    lane.take("a", 2, ALL_BYTES, 0.0)
    lane.take("b", 2, ALL_BYTES, 0.0)
    begin(lane, "a", 1, 1, 1)

    assert lane.return_instance("a", 1.0) == 2

    assert lane.unsettled_by_instance == {"b": 2}
    assert again_offsets(take_all(lane, "b", now=1.0)) == [(0, 1), (1, 2)]


def test_a_message_that_ends_every_stream_becomes_a_dead_letter() -> None:
    lane = make_lane(fed=1)
    for now in (0.0, 1.0, 21.0):
        assert take_all(lane, now=now).count == 1
        begin_all(lane)
        lane.return_instance("a", now)

    assert take_all(lane, now=1e9).count == 0
    [move] = persist(lane).dead_letters
    assert (move.attempts, move.reason) == (3, "ATTEMPTS_EXHAUSTED")


def test_a_body_is_not_asked_for_twice_while_it_is_being_fetched() -> None:
    lane = make_lane(fed=2)
    take_all(lane)
    lane.return_instance("a", 0.0)

    assert lane.due(0.0, 1) == [(0, stored_at_us(0))]
    assert lane.due(0.0, 9) == [(1, stored_at_us(1))]
    assert lane.due(0.0, 9) == []


def test_a_body_that_could_not_be_fetched_is_asked_for_again() -> None:
    lane = make_lane(fed=1)
    take_all(lane)
    lane.return_instance("a", 0.0)
    lane.due(0.0, 9)

    lane.fetch_failed([0, 17])

    assert lane.due(0.0, 9) == [(0, stored_at_us(0))]


def test_a_message_whose_day_was_dropped_is_settled_as_expired() -> None:
    lane = make_lane(fed=1)
    take_all(lane)
    settle(lane, "a", Verdict.RETRY, 0, 0, 1, now=0.0)
    persist(lane)
    lane.due(10.0, 9)

    lane.feed_again([], [0])

    assert lane.counters.expired == 1
    assert persist(lane).redelivered == [0]


def test_an_answer_nobody_asked_for_changes_nothing() -> None:
    lane = make_lane(fed=1)

    lane.feed_again([FakeMessage(0)], [0])

    assert (lane.ready_count, lane.counters.expired) == (1, 0)


def test_an_answer_for_a_message_that_waits_for_its_time_changes_nothing() -> None:
    lane = make_lane(fed=1)
    take_all(lane)
    settle(lane, "a", Verdict.RETRY, 0, 0, 1, now=0.0)

    lane.feed_again([FakeMessage(0)], [0])
    lane.fetch_failed([0])

    assert (lane.ready_count, lane.due_count, lane.counters.expired) == (0, 0, 0)


def test_what_has_become_due_is_seen_after_expire() -> None:
    lane = make_lane(fed=1)
    take_all(lane)
    settle(lane, "a", Verdict.RETRY, 0, 0, 1, now=0.0)

    lane.expire(10.0)

    assert lane.due_count == 1
    assert lane.next_wakeup() is None


def test_dropped_days_are_passed_over_and_counted() -> None:
    lane = make_lane(acked_ranges=[(2, 4)])

    lane.feed(6, 8, messages(6, 8), days_dropped=True)

    assert lane.counters.expired == 4
    assert fresh_offsets(take_all(lane)) == [6, 7]
    assert lane.acked_offset == 6


def test_a_gap_in_the_log_is_refused() -> None:
    with pytest.raises(AssertionError):
        make_lane().feed(1, 2, messages(1, 2))


def test_what_was_read_already_is_not_taken_in_twice() -> None:
    lane = make_lane(fed=4)

    lane.feed(2, 6, messages(2, 6))
    lane.feed(0, 4, messages(0, 4))

    assert fresh_offsets(take_all(lane)) == [0, 1, 2, 3, 4, 5]


def test_a_stress_message_is_not_handed_out_if_permission_was_withdrawn() -> None:
    lane = make_lane()
    lane.feed(0, 4, [FakeMessage(0), FakeMessage(1, stress=True), FakeMessage(2), FakeMessage(3, stress=True)])

    handout = lane.take("a", 9, ALL_BYTES, 0.0, lambda message: message.queue_offset != 1)

    assert fresh_offsets(handout) == [0, 2, 3]
    assert lane.counters.denied == 1
    settle(lane, "a", Verdict.ACK, 0, 3, 1, 0.0)
    assert lane.acked_offset == 4


def test_denied_messages_do_not_end_a_hand_out() -> None:
    lane = make_lane()
    lane.feed(0, 3, [FakeMessage(0, stress=True), FakeMessage(1, stress=True), FakeMessage(2)])

    assert fresh_offsets(lane.take("a", 1, ALL_BYTES, 0.0, lambda _: False)) == [2]


def test_permission_is_asked_again_when_a_stress_message_comes_again() -> None:
    lane = make_lane()
    lane.feed(0, 1, [FakeMessage(0, stress=True)])
    take_all(lane)
    lane.return_instance("a", 0.0)
    lane.due(0.0, 9)
    lane.feed_again([FakeMessage(0, stress=True)], [])

    assert lane.take("a", 9, ALL_BYTES, 0.0, lambda _: False).count == 0

    assert lane.acked_offset == 1
    assert lane.counters.denied == 1


def test_what_comes_again_goes_before_what_is_new_within_the_limits() -> None:
    lane = make_lane(fed=4)
    lane.take("a", 3, ALL_BYTES, 0.0)
    lane.return_instance("a", 0.0)
    fetch_due(lane, 0.0)

    first = lane.take("b", 9, 250, 0.0)
    assert (again_offsets(first), fresh_offsets(first)) == ([(0, 1), (1, 1)], [])
    second = lane.take("b", 9, 150, 0.0)
    assert (again_offsets(second), fresh_offsets(second)) == ([(2, 1)], [])
    third = lane.take("b", 9, 150, 0.0)
    assert (again_offsets(third), fresh_offsets(third)) == ([], [3])


def test_what_comes_again_at_once_is_handed_out_in_the_order_of_the_queue_however_it_became_due() -> None:
    lane = make_lane(fed=3)
    lane.take("a", 3, ALL_BYTES, 0.0)
    for offset in (0, 1, 2):
        settle(lane, "a", Verdict.RETRY, offset, offset, 1, 0.0, delay_seconds=9.0 - offset)
    lane.feed(3, 4, messages(3, 4))
    fetch_due(lane, 20.0)

    handout = lane.take("b", 9, ALL_BYTES, 20.0, place=5)
    assert (again_offsets(handout), fresh_offsets(handout)) == ([(0, 2), (1, 2), (2, 2)], [3])
    first = lane.first_held("b")
    assert first is not None
    assert (first.held, first.place) == (held(0, 0, 2), 5)


def test_what_is_new_is_not_handed_out_together_with_what_comes_again_and_lies_behind_it() -> None:
    row = RedeliveryRow(5, stored_at_us(5), 2, -1.0, None)
    lane = make_lane(fed=2, redeliveries=[row])
    fetch_due(lane, 0.0)

    first, second = take_all(lane), take_all(lane)
    assert (again_offsets(first), fresh_offsets(first)) == ([(5, 2)], [])
    assert (again_offsets(second), fresh_offsets(second)) == ([], [0, 1])


def test_a_range_settles_all_that_the_instance_holds_of_it_whichever_hand_out_it_came_with() -> None:
    lane = make_lane(fed=4)
    lane.take("a", 3, ALL_BYTES, 0.0)
    lane.take("b", 1, ALL_BYTES, 0.0)
    settle(lane, "a", Verdict.RELEASE, 1, 1, 1, 0.0)
    settle(lane, "a", Verdict.RELEASE, 0, 0, 1, 0.0)
    settle(lane, "a", Verdict.RELEASE, 2, 2, 1, 0.0)
    fetch_due(lane, 0.0)
    assert [again_offsets(lane.take("a", 1, ALL_BYTES, 0.0)) for _ in range(3)] == [[(1, 1)], [(0, 1)], [(2, 1)]]

    settled = settle(lane, "a", Verdict.ACK, 0, 3, 1, 0.0)
    assert (settled.count, settled.stale, lane.acked_offset) == (3, 1, 3)


def test_a_stopped_lane_hands_nothing_out_and_still_takes_verdicts() -> None:
    lane = make_lane(fed=3)
    lane.take("a", 1, ALL_BYTES, 0.0)
    lane.stop()

    assert lane.wants() == 0
    lane.feed(3, 4, messages(3, 4))
    assert take_all(lane).count == 0
    was_drained = lane.is_drained
    settle(lane, "a", Verdict.ACK, 0, 0, 1, 0.0)

    assert lane.is_stopped
    assert (was_drained, lane.is_drained) == (False, True)
    assert persist(lane).acked_offset == 1


def test_what_an_instance_leaves_in_good_order_comes_again_as_the_same_attempt() -> None:
    lane = make_lane(fed=2)
    take_all(lane)

    assert lane.return_instance("a", 1.0, counts=False) == 2

    again = take_all(lane, "b", 1.0).again
    assert [(each.message.queue_offset, each.attempt) for each in again] == [(0, 1), (1, 1)]


def test_a_stopped_lane_lets_all_bodies_go() -> None:
    lane = make_lane(fed=4)
    lane.take("a", 2, ALL_BYTES, 0.0)
    lane.return_instance("a", 0.0)
    fetch_due(lane, 0.0)
    before = lane.ready_count

    lane.stop()

    assert (before, lane.ready_count) == (4, 0)


def test_a_lane_stopped_during_a_fetch_lets_the_bodies_go() -> None:
    lane = make_lane(fed=2)
    take_all(lane)
    begin_all(lane)
    lane.return_instance("a", 0.0)
    lane.due(0.0, 9)
    lane.stop()

    lane.feed_again(messages(0, 2), [])

    assert lane.ready_count == 0
    assert [row.queue_offset for row in persist(lane).redeliveries] == [0, 1]


def test_a_new_ack_timeout_applies_to_what_is_handed_out_afterwards() -> None:
    lane = make_lane(fed=2)
    lane.take("a", 1, ALL_BYTES, 0.0)
    lane.reconfigure(LaneConfig(ack_timeout_seconds=5.0, retry=CONFIG.retry))
    lane.take("b", 1, ALL_BYTES, 0.0)

    assert lane.expire(5.0) == {"b": 1}
    assert lane.expire(30.0) == {"a": 1}
