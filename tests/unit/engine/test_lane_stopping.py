"""What a lane that is given away leaves to its next owner."""

from __future__ import annotations

from msgbroker.engine.verdicts import Verdict
from tests.unit.engine.builders import make_lane, persist, take_all


def test_an_attempt_that_ended_its_instance_is_counted_by_the_next_owner() -> None:
    lane = make_lane(fed=2)
    take_all(lane, "a")
    lane.return_instance("a", 1.0)

    lane.stop()

    checkpoint = persist(lane)
    assert [(row.queue_offset, row.attempt) for row in checkpoint.redeliveries] == [(0, 2), (1, 2)]
    assert checkpoint.acked_offset == 2


def test_an_instance_that_ends_after_the_lane_has_stopped_counts_as_well() -> None:
    lane = make_lane(fed=1)
    take_all(lane, "a")
    lane.stop()

    lane.return_instance("a", 1.0)

    assert [(row.queue_offset, row.attempt) for row in persist(lane).redeliveries] == [(0, 2)]


def test_what_was_never_attempted_leaves_no_row() -> None:
    lane = make_lane(fed=2)
    take_all(lane, "a")
    lane.settle("a", Verdict.RELEASE, 0, 0, 1, 1.0)

    lane.stop()

    assert lane.checkpoint(2.0) is None
