"""What a lane that is given away leaves to its next owner."""

from __future__ import annotations

from msgbroker.engine.lane.begun import Begun
from msgbroker.engine.verdicts import Verdict
from tests.support.lane_builders import (
    ALL_BYTES,
    FakeMessage,
    begin_all,
    make_lane,
    persist,
    settle,
    take_all,
)


def test_an_attempt_that_ended_its_instance_is_counted_by_the_next_owner() -> None:
    lane = make_lane(fed=2)
    take_all(lane, "a")
    begin_all(lane)
    lane.return_instance("a", 1.0)

    lane.stop()

    checkpoint = persist(lane)
    assert [(row.queue_offset, row.attempt) for row in checkpoint.redeliveries] == [(0, 2), (1, 2)]
    assert checkpoint.acked_offset == 2


def test_an_instance_that_ends_after_the_lane_has_stopped_counts_as_well() -> None:
    lane = make_lane(fed=1)
    take_all(lane, "a")
    begin_all(lane)
    lane.stop()

    lane.return_instance("a", 1.0)

    assert [(row.queue_offset, row.attempt) for row in persist(lane).redeliveries] == [(0, 2)]


def test_what_was_never_attempted_leaves_no_row() -> None:
    lane = make_lane(fed=2)
    take_all(lane, "a")
    settle(lane, "a", Verdict.RELEASE, 0, 0, 1, 1.0)

    lane.stop()

    assert lane.checkpoint(2.0) is None


def test_an_attempt_is_counted_by_the_next_owner_though_the_next_one_was_given_back_after_the_lane_had_stopped() -> (
    None
):
    lane = make_lane(fed=2)
    take_all(lane, "a")
    begin_all(lane)
    lane.return_instance("a", 1.0)
    take_all(lane, "b")
    lane.stop()

    settle(lane, "b", Verdict.RELEASE, 0, 1, 2, 1.0)

    assert [(row.queue_offset, row.attempt) for row in persist(lane).redeliveries] == [(0, 2), (1, 2)]


def test_an_attempt_that_was_not_begun_in_time_is_counted_by_the_next_owner_as_it_is() -> None:
    lane = make_lane(fed=1)
    take_all(lane, "a")
    begin_all(lane)
    lane.return_instance("a", 0.0)
    lane.feed_again([FakeMessage(offset) for offset, _ in lane.due(0.0, 9)], [])
    lane.take("b", 9, ALL_BYTES, 0.0, begun=Begun.NO)
    lane.stop()

    lane.expire(30.0)

    assert [(row.queue_offset, row.attempt) for row in persist(lane).redeliveries] == [(0, 2)]
