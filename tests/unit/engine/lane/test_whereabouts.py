"""Where the lane says that a message is."""

from __future__ import annotations

from dataclasses import replace

from msgbroker.contract.whereabouts import Stand
from msgbroker.engine.lane.begun import Begun
from msgbroker.engine.lane.whereabouts import InFlight, Whereabouts
from msgbroker.engine.verdicts import Verdict
from msgdb.lanes.records import RedeliveryRow
from tests.support.lane_builders import (
    ALL_BYTES,
    CONFIG,
    begin,
    extend,
    fetch_due,
    make_lane,
    settle,
    stored_at_us,
    take_all,
)


def test_what_is_handed_out_is_with_its_instance_from_then_until_its_time_to_answer_is_over() -> None:
    lane = make_lane(4)
    lane.take("a", 2, ALL_BYTES, 5.0, begun=Begun.NO)
    lane.take("b", 1, ALL_BYTES, 7.0, begun=Begun.NO)
    begin(lane, "a", 1, 1, 1)

    assert lane.find(0) == Whereabouts(Stand.IN_FLIGHT, 1, flight=InFlight("a", 5.0, 35.0, has_begun=False))
    assert lane.find(1) == Whereabouts(Stand.IN_FLIGHT, 1, flight=InFlight("a", 5.0, 35.0, has_begun=True))
    assert lane.find(2) == Whereabouts(Stand.IN_FLIGHT, 1, flight=InFlight("b", 7.0, 37.0, has_begun=False))
    assert lane.find(3) == Whereabouts(Stand.READY, 1)
    assert lane.find(4) == Whereabouts(Stand.UNREAD)


def test_what_is_kept_for_longer_was_handed_out_no_later() -> None:
    lane = make_lane(3)
    take_all(lane, now=5.0)
    extend(lane, "a", 1, 1, 1, 20.0, 100.0)

    assert lane.find(1).flight == InFlight("a", 5.0, 120.0, has_begun=True)
    assert lane.find(2).flight == InFlight("a", 5.0, 35.0, has_begun=False)


def test_what_has_failed_waits_until_it_comes_again_as_the_next_attempt() -> None:
    lane = make_lane(1)
    take_all(lane)
    settle(lane, "a", Verdict.RETRY, 0, 0, 1, now=2.0)
    waiting = lane.find(0)
    fetched = fetch_due(lane, 12.0)
    ready = lane.find(0)
    lane.take("b", 1, ALL_BYTES, 13.0)

    assert waiting == Whereabouts(Stand.WAITING, 2, due_at=12.0)
    assert fetched == [0]
    assert ready == Whereabouts(Stand.READY, 2)
    assert lane.find(0) == Whereabouts(Stand.IN_FLIGHT, 2, flight=InFlight("b", 13.0, 43.0, has_begun=False))


def test_what_is_settled_is_so_before_and_behind_the_cursor() -> None:
    lane = make_lane(3)
    take_all(lane)
    settle(lane, "a", Verdict.ACK, 0, 0, 1, now=1.0)
    settle(lane, "a", Verdict.ACK, 2, 2, 1, now=1.0)

    assert [lane.find(offset).stand for offset in range(3)] == [Stand.SETTLED, Stand.IN_FLIGHT, Stand.SETTLED]


def test_a_message_with_a_row_is_not_settled_though_the_cursor_has_passed_it() -> None:
    rows = [
        RedeliveryRow(2, attempt=3, due_in_seconds=9.0, stored_at_us=stored_at_us(2), ordering_key=None),
        RedeliveryRow(
            3, attempt=1, due_in_seconds=0.0, stored_at_us=stored_at_us(3), ordering_key=None, shelved_by="1"
        ),
    ]
    lane = make_lane(acked_offset=5, redeliveries=rows)

    assert lane.find(1) == Whereabouts(Stand.SETTLED)
    assert lane.find(2) == Whereabouts(Stand.WAITING, 3, due_at=9.0)
    assert lane.find(3) == Whereabouts(Stand.SHELVED, 1)


def test_a_stopped_lane_has_let_go_of_what_it_had_not_handed_out() -> None:
    lane = make_lane(2)
    lane.take("a", 1, ALL_BYTES, 0.0)
    lane.stop()

    assert lane.find(0).stand is Stand.IN_FLIGHT
    assert lane.find(1) == Whereabouts(Stand.UNREAD)


def test_a_flight_with_holes_has_its_own_messages_only() -> None:
    lane = make_lane(5)
    take_all(lane)
    settle(lane, "a", Verdict.ACK, 1, 1, 1, now=1.0)
    settle(lane, "a", Verdict.RETRY, 3, 3, 1, now=1.0)

    stands = [lane.find(offset).stand for offset in range(5)]
    assert stands == [Stand.IN_FLIGHT, Stand.SETTLED, Stand.IN_FLIGHT, Stand.WAITING, Stand.IN_FLIGHT]


def test_a_straggler_that_was_written_down_is_still_with_its_instance_and_since_then() -> None:
    lane = make_lane(10, config=replace(CONFIG, window_max=10, redeliveries_max=20))
    lane.take("stalled", 1, ALL_BYTES, 5.0)
    take_all(lane, "a", now=6.0)
    settle(lane, "a", Verdict.ACK, 1, 9, 1, now=7.0)

    assert lane.redelivery_count == 1
    assert lane.find(0) == Whereabouts(Stand.IN_FLIGHT, 1, flight=InFlight("stalled", 5.0, 35.0, has_begun=False))
