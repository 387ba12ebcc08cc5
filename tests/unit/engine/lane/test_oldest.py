"""Which of a lane's unsettled messages are the oldest."""

from __future__ import annotations

from msgbroker.contract.whereabouts import Stand
from msgbroker.engine.lane.whereabouts import WantedUnsettled
from msgbroker.engine.verdicts import Verdict
from tests.support.lane_builders import ALL_BYTES, fetch_due, make_lane, messages, settle, stored_at_us, take_all
from tests.support.lane_oldest import ALL, check_oldest


def test_flights_what_comes_again_and_what_is_ready_are_told_in_the_order_of_the_queue() -> None:
    lane = make_lane(6)
    lane.take("a", 2, ALL_BYTES, 5.0)
    lane.take("b", 2, ALL_BYTES, 6.0)
    settle(lane, "a", Verdict.RETRY, 1, 1, 1, now=7.0)
    settle(lane, "b", Verdict.ACK, 2, 2, 1, now=7.0)
    lane.feed(6, 7, (), shelved=[(messages(6, 7)[0], "1")])

    oldest = lane.find_oldest(ALL, 10)

    assert [(each.queue_offset, each.where.stand, each.where.attempt) for each in oldest] == [
        (0, Stand.IN_FLIGHT, 1),
        (1, Stand.WAITING, 2),
        (3, Stand.IN_FLIGHT, 1),
        (4, Stand.READY, 1),
        (5, Stand.READY, 1),
        (6, Stand.SHELVED, 1),
    ]
    assert [each.stored_at_us for each in oldest] == [stored_at_us(offset) for offset in (0, 1, 3, 4, 5, 6)]
    check_oldest(lane, 7)


def test_no_more_are_told_than_asked_for() -> None:
    lane = make_lane(5)
    lane.take("a", 1, ALL_BYTES, 0.0)

    assert [each.queue_offset for each in lane.find_oldest(ALL, 4)] == [0, 1, 2, 3]


def test_what_is_due_again_and_has_a_row_waits_until_it_is_handed_out() -> None:
    lane = make_lane(1)
    take_all(lane)
    settle(lane, "a", Verdict.RETRY, 0, 0, 1, now=2.0)
    assert fetch_due(lane, 12.0) == [0]

    (ready,) = lane.find_oldest(ALL, 1)
    lane.take("b", 1, ALL_BYTES, 13.0)
    (flying,) = lane.find_oldest(ALL, 1)

    assert (ready.where.stand, ready.where.due_at, ready.where.attempt) == (Stand.WAITING, 12.0, 2)
    assert (flying.where.stand, flying.where.attempt) == (Stand.IN_FLIGHT, 2)
    assert lane.find_oldest(WantedUnsettled({Stand.READY}), 1) == []


def test_only_what_these_instances_have_is_told() -> None:
    lane = make_lane(4)
    lane.take("a", 2, ALL_BYTES, 5.0)
    lane.take("b", 1, ALL_BYTES, 5.0)
    settle(lane, "a", Verdict.RETRY, 1, 1, 1, now=5.0, delay_seconds=0.0)
    fetch_due(lane, 6.0)
    lane.take("b", 1, ALL_BYTES, 6.0)

    of_b = lane.find_oldest(WantedUnsettled(ALL.stands, ("b",)), 10)

    assert [(each.queue_offset, each.where.attempt) for each in of_b] == [(1, 2), (2, 1)]
