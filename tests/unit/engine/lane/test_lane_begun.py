"""What was begun pays for the end of its instance; what was only held does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from msgbroker.engine.lane.begun import Begun, FirstHeld
from msgbroker.engine.verdicts import Settled, Verdict
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
    persist,
    settle,
    take_all,
)

NARROW = replace(CONFIG, window_max=10, redeliveries_max=20)


def test_only_what_was_begun_counts_when_the_stream_ends() -> None:
    lane = make_lane(fed=6)
    take_all(lane)

    begin(lane, "a", 1, 2, 1)
    begin(lane, "a", 4, 4, 1)
    lane.return_instance("a", 0.0)

    assert again_offsets(take_all(lane)) == [(0, 1), (1, 2), (2, 2), (3, 1), (4, 2), (5, 1)]


def test_from_the_second_time_on_what_was_begun_waits_by_the_schedule() -> None:
    lane = make_lane(fed=1)
    take_all(lane)
    begin_all(lane)
    lane.return_instance("a", 0.0)
    take_all(lane)
    begin_all(lane)

    lane.return_instance("a", 0.0)

    assert lane.next_wakeup() == 20.0
    assert again_offsets(take_all(lane, now=20.0)) == [(0, 3)]


def test_what_was_begun_together_twice_does_not_come_again_together() -> None:
    lane = make_lane(fed=4)
    for _ in range(2):
        take_all(lane)
        begin_all(lane)
        lane.return_instance("a", 0.0)

    assert [lane.due(now, 9) for now in (20.0, 25.0, 30.0, 35.0)] == [
        [(offset, 1_000_000 + offset)] for offset in range(4)
    ]


def test_what_comes_again_is_not_begun_any_more() -> None:
    lane = make_lane(fed=1)
    take_all(lane)
    begin_all(lane)
    lane.return_instance("a", 0.0)
    take_all(lane, "b")

    lane.return_instance("b", 0.0)

    assert again_offsets(take_all(lane)) == [(0, 2)]


def test_what_was_released_and_is_handed_out_again_is_not_begun_any_more() -> None:
    lane = make_lane(fed=1)
    take_all(lane)
    begin_all(lane)
    settle(lane, "a", Verdict.RELEASE, 0, 0, 1, 0.0)
    take_all(lane)

    lane.return_instance("a", 0.0)

    assert again_offsets(take_all(lane)) == [(0, 1)]


def test_what_was_begun_stays_begun_when_it_is_parked() -> None:
    lane = make_lane(fed=10, config=NARROW)
    lane.take("stalled", 2, ALL_BYTES, 0.0)
    begin(lane, "stalled", 1, 1, 1)
    take_all(lane)
    settle(lane, "a", Verdict.ACK, 2, 9, 1, 0.0)
    assert lane.redelivery_count == 2

    lane.return_instance("stalled", 0.0)

    assert again_offsets(take_all(lane)) == [(0, 1), (1, 2)]


def test_what_is_parked_can_be_begun() -> None:
    lane = make_lane(fed=10, config=NARROW)
    lane.take("stalled", 2, ALL_BYTES, 0.0)
    take_all(lane)
    settle(lane, "a", Verdict.ACK, 2, 9, 1, 0.0)

    begin(lane, "stalled", 1, 1, 1)
    lane.return_instance("stalled", 0.0)

    assert again_offsets(take_all(lane)) == [(0, 1), (1, 2)]


def test_what_was_begun_stays_begun_when_its_neighbours_are_answered() -> None:
    lane = make_lane(fed=5)
    take_all(lane)
    begin(lane, "a", 1, 3, 1)

    assert settle(lane, "a", Verdict.ACK, 0, 1, 1, 0.0) == Settled(2, 0)
    assert settle(lane, "a", Verdict.ACK, 3, 3, 1, 0.0) == Settled(1, 0)
    lane.return_instance("a", 0.0)

    assert again_offsets(take_all(lane)) == [(2, 2), (4, 1)]


@pytest.mark.parametrize(
    "instance_id, first, last, attempt, epoch",
    [("b", 0, 9, 1, 1), ("a", 5, ALL_BYTES, 1, 1), ("a", 0, 9, 2, 1), ("a", 0, 9, 1, 2)],
    ids=["another instance", "other messages", "another attempt", "another epoch"],
)
def test_what_is_begun_elsewhere_changes_nothing(
    instance_id: str, first: int, last: int, attempt: int, epoch: int
) -> None:
    lane = make_lane(fed=2)
    take_all(lane)

    lane.begin(instance_id, held(first, last, attempt, epoch=epoch))
    lane.return_instance("a", 0.0)

    assert again_offsets(take_all(lane)) == [(0, 1), (1, 1)]


def test_a_flight_is_begun_in_any_pieces_and_answered_in_others() -> None:
    lane = make_lane(fed=9)
    take_all(lane)

    for first, last in [(4, 4), (0, 0), (3, 5), (7, 20)]:
        begin(lane, "a", first, last, 1)

    assert lane.in_flight_count == 9
    assert settle(lane, "a", Verdict.ACK, 2, 6, 1, 0.0) == Settled(5, 0)
    assert settle(lane, "a", Verdict.ACK, 0, 8, 1, 0.0) == Settled(4, 5)
    assert (lane.acked_offset, lane.unsettled_by_instance) == (9, {})


def test_what_an_instance_says_it_has_not_begun_in_time_comes_again_at_once_and_does_not_count() -> None:
    lane = make_lane(fed=2)
    lane.take("a", 9, ALL_BYTES, 0.0, begun=Begun.NO)
    begin(lane, "a", 0, 0, 1)

    assert lane.late_and_not_begun(29.9) == set()
    assert lane.late_and_not_begun(30.0) == {"a"}
    assert lane.expire(30.0) == {"a": 2}

    assert lane.counters.timed_out == 2
    assert again_offsets(take_all(lane, "b", now=30.0)) == [(1, 1)]
    assert again_offsets(take_all(lane, "b", now=40.0)) == [(0, 2)]


def test_what_comes_again_and_is_not_begun_in_time_does_not_count_either() -> None:
    lane = make_lane(fed=1)
    take_all(lane)
    settle(lane, "a", Verdict.RETRY, 0, 0, 1, 0.0)
    fetch_due(lane, 10.0)
    lane.take("a", 9, ALL_BYTES, 10.0, begun=Begun.NO)

    assert lane.late_and_not_begun(39.9) == set()
    assert lane.late_and_not_begun(40.0) == {"a"}
    lane.expire(40.0)

    assert again_offsets(take_all(lane, now=40.0)) == [(0, 2)]


def test_of_an_instance_that_does_not_say_what_it_begins_no_answer_in_time_counts() -> None:
    lane = make_lane(fed=1)
    lane.take("a", 9, ALL_BYTES, 0.0, begun=Begun.UNKNOWN)

    assert lane.late_and_not_begun(30.0) == set()
    lane.expire(30.0)

    assert again_offsets(take_all(lane, now=40.0)) == [(0, 2)]


def test_what_counts_as_begun_when_it_is_handed_out_counts_when_the_stream_ends() -> None:
    lane = make_lane(fed=1)
    lane.take("a", 9, ALL_BYTES, 0.0, begun=Begun.YES)

    lane.return_instance("a", 0.0)

    assert again_offsets(take_all(lane)) == [(0, 2)]


def test_the_message_that_was_handed_out_first_of_those_still_held_is_known() -> None:
    lane = make_lane(fed=6)
    lane.take("b", 2, ALL_BYTES, 0.0, place=3)
    settle(lane, "b", Verdict.RELEASE, 0, 1, 1, 0.0)
    fetch_due(lane, 0.0)
    assert lane.first_held("a") is None

    # 0 and 1 again, then 2 and 3.
    lane.take("a", 4, ALL_BYTES, 0.0, place=10)
    seen = []
    for offset in range(4):
        seen.append(lane.first_held("a"))
        settle(lane, "a", Verdict.ACK, offset, offset, 1, 0.0)

    assert seen == [FirstHeld(10 + offset, held(offset, offset), has_begun=False) for offset in range(4)]
    assert lane.first_held("a") is None


def test_the_message_handed_out_first_is_known_in_whatever_order_messages_came() -> None:
    lane = make_lane(fed=4)
    lane.take("b", 2, ALL_BYTES, 0.0)
    lane.take("a", 2, ALL_BYTES, 0.0, place=0)
    lane.return_instance("b", 0.0)
    fetch_due(lane, 0.0)
    lane.take("a", 2, ALL_BYTES, 0.0, place=2)

    assert lane.first_held("a") == FirstHeld(0, held(2, 2), has_begun=False)
    begin(lane, "a", 1, 1, 1)
    assert lane.first_held("a") == FirstHeld(0, held(2, 2), has_begun=True)
    settle(lane, "a", Verdict.ACK, 2, 3, 1, 0.0)
    assert lane.first_held("a") == FirstHeld(2, held(0, 0), has_begun=True)


def test_parts_of_a_flight_keep_their_places() -> None:
    lane = make_lane(fed=10, config=NARROW)
    lane.take("stalled", 3, ALL_BYTES, 0.0, place=7)
    take_all(lane)
    settle(lane, "stalled", Verdict.ACK, 0, 0, 1, 0.0)
    lane.feed(10, 11, [FakeMessage(10)])
    settle(lane, "a", Verdict.ACK, 3, 9, 1, 0.0)
    assert lane.redelivery_count == 2

    assert lane.first_held("stalled") == FirstHeld(8, held(1, 1), has_begun=False)


def test_the_last_attempt_that_ends_its_instance_is_a_dead_letter_with_its_reason() -> None:
    lane = make_lane(fed=1, config=replace(CONFIG, retry=replace(CONFIG.retry, attempts_max=1)))
    take_all(lane)
    lane.feed_again([FakeMessage(0)], [])
    begin_all(lane)

    lane.return_instance("a", 0.0)

    [move] = persist(lane).dead_letters
    assert (move.attempts, move.reason) == (1, "ATTEMPTS_EXHAUSTED")
    assert move.last_error == "the instance's stream ended before it answered"


def test_what_an_instance_held_that_crashed_is_handed_out_as_suspect_and_apart_from_the_rest() -> None:
    lane = make_lane(fed=6)
    lane.take("a", 2, ALL_BYTES, 0.0)
    lane.take("b", 1, ALL_BYTES, 0.0)
    settle(lane, "b", Verdict.RELEASE, 2, 2, 1, 0.0)
    lane.return_instance("a", 0.0, has_crashed=True)
    fetch_due(lane, 0.0)

    first, second, third = (lane.take("c", 9, ALL_BYTES, 0.0) for _ in range(3))

    assert (again_offsets(first), fresh_offsets(first), first.is_suspect) == ([(2, 1)], [3, 4, 5], False)
    assert (again_offsets(second), fresh_offsets(second), second.is_suspect) == ([(0, 1), (1, 1)], [], True)
    assert (third.count, third.is_suspect) == (0, False)


def test_what_is_suspect_is_so_until_an_instance_has_handled_it_and_lives() -> None:
    lane = make_lane(fed=3)
    take_all(lane)
    lane.return_instance("a", 0.0, has_crashed=True)
    handout = take_all(lane, "b")
    settle(lane, "b", Verdict.RETRY, 0, 0, 1, 0.0, delay_seconds=0.0)
    settle(lane, "b", Verdict.RELEASE, 1, 1, 1, 0.0)
    lane.return_instance("b", 0.0)
    fetch_due(lane, 0.0)

    handled, suspect = (lane.take("c", 9, ALL_BYTES, 0.0) for _ in range(2))

    assert handout.is_suspect
    assert (again_offsets(handled), handled.is_suspect) == ([(0, 2)], False)
    assert (again_offsets(suspect), suspect.is_suspect) == ([(1, 1), (2, 1)], True)


def test_suspects_that_may_not_be_handed_out_hold_up_nothing_else() -> None:
    lane = make_lane()
    lane.feed(0, 2, [FakeMessage(0, stress=True), FakeMessage(1)])
    take_all(lane)
    settle(lane, "a", Verdict.RELEASE, 1, 1, 1, 0.0)
    lane.return_instance("a", 0.0, has_crashed=True)
    for offset, _ in reversed(lane.due(0.0, 9)):
        lane.feed_again([FakeMessage(offset, stress=offset == 0)], [])

    handouts = [lane.take("b", 9, ALL_BYTES, 0.0, lambda _: False) for _ in range(2)]

    assert [again_offsets(handout) for handout in handouts if handout.count] == [[(1, 1)]]
    assert lane.counters.denied == 1
