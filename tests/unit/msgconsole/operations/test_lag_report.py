"""The lag of topics, summed up from their queues."""

from __future__ import annotations

from msgconsole.operations.lag_report import QueueLag, TopicLag, sum_by_topic


def queue_lag(queue_id: int, *, alarms: tuple[str, ...] = (), oldest_seconds: float | None = None) -> QueueLag:
    return QueueLag(
        "default", "SG_POINTS", "TP_TRADE", queue_id, acked_offset=5, next_offset=9, behind=4, redeliveries=2,
        alarms=alarms, oldest_seconds=oldest_seconds, broker=None, dead_letters=3,
    )  # fmt: skip


def test_a_topic_is_behind_by_what_its_queues_are() -> None:
    queues = [queue_lag(1), queue_lag(2, oldest_seconds=4.0), queue_lag(3, oldest_seconds=7.0)]

    assert sum_by_topic(queues) == [
        TopicLag("default", "SG_POINTS", "TP_TRADE", 12, 6, (), 7.0, 3, matching_unknown=12)
    ]


def test_a_topic_is_alarmed_where_one_of_its_queues_is() -> None:
    (topic,) = sum_by_topic([queue_lag(1), queue_lag(2, alarms=("LANE_SET_ASIDE",)), queue_lag(3, alarms=("A",))])

    assert topic.alarms == ("A", "LANE_SET_ASIDE")
