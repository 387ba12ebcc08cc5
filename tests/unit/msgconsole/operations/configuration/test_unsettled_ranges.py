"""What a group has not settled, as stretches of its queues."""

from __future__ import annotations

from msgconsole.operations.configuration.stress_preview import unsettled_ranges
from msgconsole.operations.figures.lag import QueueLag
from msgdb.lanes.resets import LanePlace


def lag(queue_id: int, acked_offset: int, next_offset: int) -> QueueLag:
    return QueueLag(
        namespace="default",
        group="SG_POINTS",
        topic="TP_TRADE",
        queue_id=queue_id,
        acked_offset=acked_offset,
        next_offset=next_offset,
        behind=0,
        redeliveries=0,
        alarms=(),
        oldest_seconds=None,
        broker=None,
        dead_letters=0,
        instances=0,
        paused=False,
    )


def test_what_is_settled_above_the_cursor_is_left_out_and_what_waits_is_not() -> None:
    lags = [lag(1, 10, 20), lag(2, 5, 8), lag(3, 4, 4)]
    places = {1: LanePlace(10, [(11, 13), (15, 20)], [3, 12]), 3: LanePlace(4, [], [])}

    assert unsettled_ranges(lags, places) == [(1, 3, 4), (1, 10, 11), (1, 12, 15), (2, 5, 8)]
