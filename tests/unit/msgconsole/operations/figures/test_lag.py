"""The lag of topics, summed up from their queues."""

from __future__ import annotations

import dataclasses

from msgconsole.operations.figures.lag import QueueLag, TopicLag, sum_by_topic


def queue_lag(queue_id: int, *, alarms: tuple[str, ...] = (), oldest_seconds: float | None = None) -> QueueLag:
    return QueueLag(
        "default", "SG_POINTS", "TP_TRADE", queue_id, acked_offset=5, next_offset=9, behind=4, redeliveries=2,
        alarms=alarms, oldest_seconds=oldest_seconds, broker=None, dead_letters=3, instances=2, paused=False,
    )  # fmt: skip


def test_a_topic_is_behind_by_what_its_queues_are() -> None:
    queues = [queue_lag(1), queue_lag(2, oldest_seconds=4.0), queue_lag(3, oldest_seconds=7.0)]

    assert sum_by_topic(queues) == [
        TopicLag("default", "SG_POINTS", "TP_TRADE", 12, 6, (), 7.0, 3, instances=2, paused=False, matching_unknown=12)
    ]


def test_a_topic_is_alarmed_where_one_of_its_queues_is() -> None:
    (topic,) = sum_by_topic([queue_lag(1), queue_lag(2, alarms=("LANE_SET_ASIDE",)), queue_lag(3, alarms=("A",))])

    assert topic.alarms == ("A", "LANE_SET_ASIDE")


def test_how_much_matches_is_added_up_and_when_it_is_done_is_told_by_that_where_it_is_known_of_all() -> None:
    unknown = dataclasses.replace(queue_lag(4), per_minute=-12.0, matching_per_minute=-1.0)
    known = [dataclasses.replace(unknown, queue_id=number, matching=number) for number in (1, 2)]
    caught_up = dataclasses.replace(queue_lag(3), behind=0, matching=0)

    (of_all,), (of_some,), (of_none,) = (
        sum_by_topic(lags) for lags in ([*known, caught_up], [*known, unknown], [unknown, caught_up])
    )

    assert (of_all.behind, of_all.matching, of_all.matching_unknown, of_all.drain_seconds) == (8, 3, 0, 180.0)
    assert (of_some.behind, of_some.matching, of_some.matching_unknown, of_some.drain_seconds) == (12, 3, 4, 60.0)
    assert (of_none.behind, of_none.matching, of_none.matching_unknown, of_none.drain_seconds) == (4, None, 4, 20.0)
    assert sum_by_topic([caught_up])[0].matching == 0


def test_nobody_knows_when_it_is_done_while_nobody_does_anything() -> None:
    served = dataclasses.replace(queue_lag(1), per_minute=-12.0)

    assert sum_by_topic([served])[0].drain_seconds == 20.0
    for standing in ({"paused": True}, {"instances": 0}):
        assert sum_by_topic([dataclasses.replace(served, **standing)])[0].drain_seconds is None
        assert sum_by_topic([dataclasses.replace(served, behind=0, **standing)])[0].drain_seconds == 0.0
