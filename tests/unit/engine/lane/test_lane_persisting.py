"""What a lane persists, and what it is built from."""

from __future__ import annotations

import pytest

from msgbroker.engine.lane.lane import Lane
from msgbroker.engine.verdicts import Settled, Verdict
from msgdb.lanes.records import RedeliveryRow
from tests.support.lane_builders import (
    CONFIG,
    FakeMessage,
    again_offsets,
    begin_all,
    fresh_offsets,
    make_lane,
    messages,
    persist,
    settle,
    stored_at_us,
    take_all,
)


def row(queue_offset: int, attempt: int = 2, due_in_seconds: float = 0.0) -> RedeliveryRow:
    return RedeliveryRow(queue_offset, stored_at_us(queue_offset), attempt, due_in_seconds, None)


def fail(lane: Lane[FakeMessage], queue_offset: int, attempt: int = 1, now: float = 0.0) -> None:
    assert settle(lane, "a", Verdict.RETRY, queue_offset, queue_offset, attempt, now, error="boom").count == 1


def test_a_lane_in_which_nothing_happened_has_nothing_to_persist() -> None:
    lane = make_lane(fed=3)
    take_all(lane)

    assert lane.checkpoint(0.0) is None


def test_a_checkpoint_names_lane_and_epoch_and_is_made_once() -> None:
    lane = make_lane()
    lane.feed(0, 3, [])

    checkpoint = lane.checkpoint(0.0)

    assert checkpoint is not None
    assert (checkpoint.key, checkpoint.epoch, checkpoint.acked_offset) == (lane.key, lane.epoch, 3)
    lane.feed(3, 4, [])
    assert lane.checkpoint(0.0) is None, "one at a time"
    lane.confirm(checkpoint)
    assert persist(lane).acked_offset == 4
    assert lane.checkpoint(0.0) is None


def test_only_the_outstanding_checkpoint_can_be_confirmed() -> None:
    lane = make_lane()
    lane.feed(0, 3, [])
    checkpoint = persist(lane)

    with pytest.raises(AssertionError):
        lane.confirm(checkpoint)


def test_an_abandoned_checkpoint_comes_again_with_what_happened_since() -> None:
    lane = make_lane(fed=4)
    take_all(lane)
    fail(lane, 0)
    settle(lane, "a", Verdict.REJECT, 1, 1, 1, 0.0)
    lost = lane.checkpoint(0.0)
    assert lost is not None
    fail(lane, 2)
    settle(lane, "a", Verdict.REJECT, 3, 3, 1, 0.0)

    lane.abandon(lost)

    checkpoint = persist(lane)
    assert checkpoint.acked_offset == 4
    assert [upsert.queue_offset for upsert in checkpoint.redeliveries] == [0, 2]
    assert [move.queue_offset for move in checkpoint.dead_letters] == [1, 3]


def test_what_was_settled_is_persisted_when_its_checkpoint_is_confirmed_and_not_before() -> None:
    lane = make_lane()
    seen = [lane.is_persisted]
    lane.feed(0, 3, [])
    seen.append(lane.is_persisted)
    checkpoint = lane.checkpoint(0.0)
    assert checkpoint is not None
    seen.append(lane.is_persisted)
    lane.abandon(checkpoint)
    seen.append(lane.is_persisted)
    persist(lane)
    seen.append(lane.is_persisted)

    assert seen == [True, False, False, False, True]


def test_an_abandoned_cursor_comes_again() -> None:
    lane = make_lane()
    lane.feed(0, 3, [])
    lost = lane.checkpoint(0.0)
    assert lost is not None

    lane.abandon(lost)

    assert persist(lane).acked_offset == 3


def test_an_abandoned_deletion_comes_again() -> None:
    lane = make_lane(redeliveries=[row(0)], acked_offset=1)
    take_all(lane)
    settle(lane, "a", Verdict.ACK, 0, 0, 2, 0.0)
    lost = lane.checkpoint(0.0)
    assert lost is not None

    lane.abandon(lost)

    assert persist(lane).redelivered == [0]


def test_a_redelivery_settled_before_it_was_persisted_leaves_no_row() -> None:
    lane = make_lane(fed=1)
    take_all(lane)
    fail(lane, 0)
    take_all(lane, now=10.0)
    settle(lane, "a", Verdict.ACK, 0, 0, 2, 10.0)

    checkpoint = persist(lane)

    assert (checkpoint.acked_offset, checkpoint.redeliveries, checkpoint.redelivered) == (1, [], [])


def test_a_redelivery_settled_while_its_checkpoint_is_outstanding_is_deleted_by_the_next_one() -> None:
    lane = make_lane(fed=1)
    take_all(lane)
    fail(lane, 0)
    checkpoint = lane.checkpoint(0.0)
    assert checkpoint is not None
    take_all(lane, now=10.0)
    settle(lane, "a", Verdict.ACK, 0, 0, 2, 10.0)

    lane.confirm(checkpoint)

    assert persist(lane).redelivered == [0]
    assert lane.checkpoint(0.0) is None


def test_a_row_that_may_have_been_stored_after_all_is_deleted() -> None:
    lane = make_lane(fed=1)
    take_all(lane)
    fail(lane, 0)
    lost = lane.checkpoint(0.0)
    assert lost is not None
    take_all(lane, now=10.0)
    settle(lane, "a", Verdict.ACK, 0, 0, 2, 10.0)

    lane.abandon(lost)

    checkpoint = persist(lane)
    assert (checkpoint.redeliveries, checkpoint.redelivered) == ([], [0])


def test_a_redelivery_that_fails_again_is_updated() -> None:
    lane = make_lane(fed=1)
    take_all(lane)
    fail(lane, 0)
    persist(lane)
    take_all(lane, now=10.0)
    fail(lane, 0, attempt=2, now=10.0)

    [upsert] = persist(lane, now=10.0).redeliveries

    assert (upsert.attempt, upsert.due_in_seconds) == (3, 20.0)


def test_a_dead_letter_that_had_a_row_takes_it_along() -> None:
    lane = make_lane(redeliveries=[row(0, attempt=3)], acked_offset=1)
    take_all(lane)
    fail(lane, 0, attempt=3)

    checkpoint = persist(lane)

    [move] = checkpoint.dead_letters
    assert (move.attempts, move.had_row) == (3, True)
    assert checkpoint.redelivered == [0]


def test_a_persisted_redelivery_whose_instance_went_away_is_persisted_with_its_next_attempt() -> None:
    lane = make_lane(redeliveries=[row(0, attempt=2)], acked_offset=1)
    take_all(lane)
    begin_all(lane)
    lane.return_instance("a", 0.0)

    [upsert] = persist(lane).redeliveries

    assert (upsert.attempt, upsert.due_in_seconds) == (3, 20.0)


def test_an_error_text_is_cut_to_its_limit() -> None:
    lane = make_lane(fed=1)
    take_all(lane)
    settle(lane, "a", Verdict.RETRY, 0, 0, 1, 0.0, error="x" * 5_000)

    [upsert] = persist(lane).redeliveries
    assert upsert.last_error == "x" * 1_000


def test_a_new_owner_delivers_what_was_not_settled_and_nothing_else() -> None:
    lane = make_lane(acked_offset=2, acked_ranges=[(3, 5), (6, 7)])

    lane.feed(2, 9, messages(2, 9))

    assert fresh_offsets(take_all(lane)) == [2, 5, 7, 8]


def test_a_new_owner_does_not_read_what_lies_behind_its_cursor() -> None:
    lane = make_lane(acked_offset=2, acked_ranges=[(2, 5), (6, 8)])
    assert lane.next_offset == 5

    lane.feed(5, 6, messages(5, 6))

    assert lane.next_offset == 8


def test_a_new_owner_redelivers_what_has_a_row_when_it_is_due_with_its_attempt() -> None:
    lane = make_lane(acked_offset=4, redeliveries=[row(1, attempt=3, due_in_seconds=7.0), row(2, due_in_seconds=-3.0)])

    assert lane.redelivery_count == 2
    assert again_offsets(take_all(lane)) == [(2, 2)]
    assert lane.next_wakeup() == 7.0
    assert again_offsets(take_all(lane, now=7.0)) == [(1, 3)]


def test_a_redelivery_beyond_what_the_new_owner_has_read_can_be_settled() -> None:
    lane = make_lane(acked_offset=3, acked_ranges=[(5, 6)], redeliveries=[row(5)])
    take_all(lane)

    assert settle(lane, "a", Verdict.ACK, 5, 5, 2, 0.0) == Settled(1, 0)

    assert persist(lane).redelivered == [5]


def test_what_has_a_row_is_not_taken_from_the_log_as_well() -> None:
    lane = make_lane(acked_offset=0, redeliveries=[row(1)])

    lane.feed(0, 3, messages(0, 3))

    first, second = take_all(lane), take_all(lane)
    assert (again_offsets(first), fresh_offsets(first)) == ([(1, 2)], [])
    assert (again_offsets(second), fresh_offsets(second)) == ([], [0, 2])


def test_the_ordering_key_of_a_redelivery_is_kept() -> None:
    lane = make_lane(config=CONFIG)
    lane.feed(0, 1, [FakeMessage(0, ordering_key="order-1")])
    take_all(lane)
    fail(lane, 0)

    assert [upsert.ordering_key for upsert in persist(lane).redeliveries] == ["order-1"]
