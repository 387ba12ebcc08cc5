"""What a broker counts: by minutes of the store's clock, by types, stress traffic and what is stored again apart."""

from __future__ import annotations

from msgbroker.engine.tally import Counted
from msgbroker.server.figures.store_clock import StoreClock
from msgbroker.server.figures.usage import LaneTally, UsageCounts
from msgbroker.server.log.message import LogMessage, TargetedMessage
from msgdb.append.outcome import FrameOutcome
from msgdb.figures.usage import MINUTE_US, UsageRow
from tests.support.broker_builders import log_message, route

MINUTE = 30_000_000
TOPIC_ID = route().topic_id


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def usage(*, keys_max: int = 100) -> tuple[UsageCounts, Clock]:
    clock = Clock()
    store_clock = StoreClock(clock)
    store_clock.learn(MINUTE * MINUTE_US, 0.0)
    return UsageCounts(store_clock, keys_max=keys_max), clock


def stored(minute: int = MINUTE, event_code: str = "EC_PAID", *, stress: bool = False) -> LogMessage:
    message = log_message(0)
    message.route = route()
    message.event_code, message.stress, message.stored_at_us = event_code, stress, minute * MINUTE_US + 1
    return message


def again(group_id: int, redrives: int) -> LogMessage:
    plain = stored()
    message = TargetedMessage(
        plain.route, plain.event_code, plain.headers, "", plain.content, b"", b"", b"", stress=False
    )
    message.stored_at_us, message.target_group = plain.stored_at_us, group_id
    message.message_id, message.redrives = bytes(16), redrives
    return message


def written(counts: UsageCounts) -> list[UsageRow]:
    return counts.take(counts.changed())


def test_messages_are_counted_in_the_minute_that_they_were_stored_at() -> None:
    counts, _ = usage()

    counts.stored({1: [stored(), stored()], 2: [stored()]})
    counts.stored({1: [stored(MINUTE + 1)]})

    assert [(row.minute_us // MINUTE_US, row.topic_id, row.group_id, row.published) for row in written(counts)] == [
        (MINUTE, TOPIC_ID, 0, 3),
        (MINUTE + 1, TOPIC_ID, 0, 1),
    ]


def test_types_and_stress_traffic_are_counted_apart() -> None:
    counts, _ = usage()

    counts.stored({1: [stored(), stored(event_code="EC_REFUNDED"), stored(stress=True)]})

    assert [(row.event_code, row.stress, row.published) for row in written(counts)] == [
        ("EC_PAID", False, 1),
        ("EC_REFUNDED", False, 1),
        ("EC_PAID", True, 1),
    ]


def test_what_is_stored_again_for_a_group_is_not_published() -> None:
    counts, _ = usage()

    counts.stored({1: [stored(), again(7, 1), again(7, 0), again(7, 0)]})

    assert [(row.group_id, row.published, row.redriven, row.replayed) for row in written(counts)] == [
        (0, 1, 0, 0),
        (7, 0, 1, 2),
    ]


def test_what_was_acknowledged_is_counted_when_it_was() -> None:
    counts, clock = usage()
    tally = LaneTally(counts, 7, TOPIC_ID)
    clock.seconds = 61.0

    tally.delivered(Counted(["EC_PAID"] * 3, [10, 20, 30]), [counts.now_us() - 900] * 3)
    tally.retried(Counted(["EC_PAID"], [10]))
    tally.dead_lettered(Counted(["EC_PAID"], [10]))

    (row,) = written(counts)
    assert (row.minute_us // MINUTE_US, row.group_id, row.event_code) == (MINUTE + 1, 7, "EC_PAID")
    assert (row.delivered, row.retried, row.dead_lettered, row.size_bytes) == (3, 1, 1, 60)
    assert row.latency[0] == sum(row.latency) == 3


def test_a_batch_of_several_types_is_counted_by_type() -> None:
    counts, _ = usage()
    now_us = counts.now_us()

    LaneTally(counts, 7, TOPIC_ID).delivered(
        Counted(["A", "B", "A"], [1, 2, 4], [False, False, True]), [now_us - 9_000_000, now_us - 9_000_000, now_us]
    )

    rows = written(counts)
    assert [(row.event_code, row.stress, row.delivered, row.size_bytes) for row in rows] == [
        ("A", False, 1, 1),
        ("B", False, 1, 2),
        ("A", True, 1, 4),
    ]
    assert [sum(row.latency) for row in rows] == [1, 1, 1]


def test_totals_are_written_again_only_where_they_have_changed() -> None:
    counts, _ = usage()
    counts.stored({1: [stored(), stored(event_code="EC_REFUNDED")]})
    written(counts)

    counts.stored({1: [stored()]})

    assert [(row.event_code, row.published) for row in written(counts)] == [("EC_PAID", 2)]
    assert written(counts) == []


def test_what_may_not_have_been_written_is_written_again() -> None:
    counts, _ = usage()
    counts.stored({1: [stored()]})
    names = counts.changed()
    counts.take(names)

    counts.give_back(names)

    assert [row.published for row in written(counts)] == [1]


def test_a_minute_is_kept_until_it_is_over_and_written() -> None:
    counts, _ = usage()
    counts.stored({1: [stored(), stored(MINUTE + 1)]})
    counts.stored({1: [stored(MINUTE + 1)]})

    counts.give_up((MINUTE + 1) * MINUTE_US)
    assert [row.minute_us // MINUTE_US for row in written(counts)] == [MINUTE, MINUTE + 1]
    counts.give_up((MINUTE + 1) * MINUTE_US)
    assert counts._minutes.keys() == {MINUTE + 1}


def test_what_comes_too_late_for_its_minute_counts_in_the_first_that_is_open() -> None:
    # Its totals are gone: written anew, they would replace those that are stored.
    counts, _ = usage()
    counts.give_up((MINUTE + 1) * MINUTE_US)

    counts.stored({1: [stored()]})

    assert [row.minute_us // MINUTE_US for row in written(counts)] == [MINUTE + 1]


def test_what_is_too_much_to_be_counted_is_told() -> None:
    counts, _ = usage(keys_max=2)

    for event_code in ("A", "B", "C", "D"):
        counts.stored({1: [stored(event_code=event_code)]})

    assert [(row.event_code, row.published, row.lacks) for row in written(counts)] == [
        ("A", 1, False),
        ("B", 1, False),
        ("", 0, True),
    ]


def test_a_frame_that_was_just_stored_unseen_makes_its_minute_doubtful() -> None:
    counts, clock = usage()
    clock.seconds = 100.0
    outcome = FrameOutcome(1, bytes(16), counts.now_us() - 50_000_000, [1], [0])

    counts.stored_before(outcome)
    counts.stored_before(FrameOutcome(1, bytes(16), counts.now_us() - 70_000_000, [1], [0]))

    assert [(row.minute_us // MINUTE_US, row.lacks) for row in written(counts)] == [(MINUTE, True)]
    counts.stored_before(outcome)
    assert written(counts) == []


def test_the_answer_that_came_soonest_tells_the_time() -> None:
    clock = Clock()
    store_clock = StoreClock(clock)
    clock.seconds = 10.0
    store_clock.learn(1_000_000_000, 9.9)
    clock.seconds = 12.0

    store_clock.learn(5_000_000_000, 10.5)

    assert store_clock.now_us() == 1_000_000_000 + 2_050_000
