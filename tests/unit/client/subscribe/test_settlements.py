"""Verdicts become ranges, none is lost, none outlives its lane."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgbroker.client.handle.group_handlers import GroupHandlers
from msgbroker.client.handle.handlers import HandlerTable
from msgbroker.client.subscribe.requests import settlement_of
from msgbroker.client.subscribe.session import SubscriberSession
from msgbroker.client.subscribe.settlements import RequestRoom, SettledRanges, Settlements, coalesce
from msgbroker.client.values.config import make_config
from msgbroker.client.values.verdicts import Verdict, VerdictKind
from msgbroker.contract import limits
from msgbroker.v1 import subscriber_pb2

RETRY = Verdict(VerdictKind.RETRY, None, "no luck")


def offsets_of(ranges: list[int]) -> list[int]:
    return [o for first, last in zip(ranges[::2], ranges[1::2], strict=True) for o in range(first, last + 1)]


def make() -> tuple[Settlements, list[None]]:
    calls: list[None] = []
    return Settlements(lambda: calls.append(None), lambda do: do()), calls


@given(st.sets(st.integers(0, 60), min_size=1), st.integers(1, 10), st.randoms())
def test_ranges_and_the_rest_are_exactly_what_was_given(offsets: set[int], ranges_max: int, random: object) -> None:
    ranges, rest = coalesce(list(offsets), ranges_max)

    assert sorted(offsets_of(ranges) + rest) == sorted(offsets)
    assert len(ranges) <= 2 * ranges_max
    assert all(last + 1 < first for last, first in zip(ranges[1::2], ranges[2::2], strict=False))


def test_acknowledgements_of_a_lane_become_one_range() -> None:
    settlements, calls = make()
    lane = settlements.lane(7, 3)
    for queue_offset in (12, 10, 11):
        lane.ack(queue_offset, 1)

    assert settlements.take(RequestRoom()) == [SettledRanges(7, 3, 1, Verdict(VerdictKind.ACK), [10, 12])]
    assert (settlements.is_empty, len(calls), settlements.settled_count) == (True, 1, 3)


def test_other_verdicts_are_kept_apart_by_attempt_and_text() -> None:
    settlements, _ = make()
    lane = settlements.lane(7, 3)
    lane.settle(1, 1, RETRY)
    lane.settle(2, 1, RETRY)
    lane.settle(3, 2, RETRY)
    lane.ack(4, 2)

    assert settlements.take(RequestRoom()) == [
        SettledRanges(7, 3, 1, RETRY, [1, 2]),
        SettledRanges(7, 3, 2, RETRY, [3, 3]),
        SettledRanges(7, 3, 2, Verdict(VerdictKind.ACK), [4, 4]),
    ]


def test_a_revoked_lane_forgets_what_was_said_and_hears_no_more() -> None:
    settlements, _ = make()
    lane, other = settlements.lane(7, 3), settlements.lane(8, 3)
    lane.ack(1, 1)
    lane.settle(2, 1, RETRY)
    other.ack(1, 1)
    settlements.revoke(7, 3)
    lane.ack(3, 1)
    lane.settle(4, 1, RETRY)

    assert [settled.queue_id for settled in settlements.take(RequestRoom())] == [8]
    assert settlements.is_empty


def test_a_closed_stream_hears_no_more() -> None:
    settlements, _ = make()
    lane, untouched = settlements.lane(7, 3), settlements.lane(8, 3)
    lane.ack(1, 1)
    settlements.close()
    lane.ack(2, 1)
    untouched.ack(2, 1)

    assert settlements.is_empty
    assert not lane.live


def test_one_request_takes_a_bounded_number_of_ranges_and_the_next_the_rest() -> None:
    settlements, _ = make()
    lane = settlements.lane(7, 3)
    for queue_offset in range(0, 20, 2):
        lane.ack(queue_offset, 1)
        lane.settle(queue_offset + 100, 1, RETRY)

    seen: list[int] = []
    for _ in range(10):
        taken = settlements.take(RequestRoom(3))
        assert sum(len(settled.ranges) for settled in taken) <= 6
        seen += [offset for settled in taken for offset in offsets_of(settled.ranges)]

    assert sorted(seen) == sorted([*range(0, 20, 2), *range(100, 120, 2)])
    assert settlements.is_empty


@pytest.mark.parametrize("text", ["", "x" * 1_000, "\N{SNOWMAN}" * 1_000], ids=["none", "long", "three bytes each"])
def test_a_request_of_settlements_fits_into_what_a_broker_takes_at_once(text: str) -> None:
    settlements, _ = make()
    offset = 1 << 62
    lane = settlements.lane(1 << 63, 1 << 62)
    for number in range(0, 40_000, 2):
        lane.ack(offset + number, 1)
    for number in range(500):
        error = f"{number} {text}"[:1_000]
        lane.settle(offset + number, 2, Verdict(VerdictKind.RETRY, 1.0, error))
    count = 0
    while not settlements.is_empty:
        taken = settlements.take(RequestRoom())
        request = subscriber_pb2.SubscribeRequest(
            settlements=[settlement_of(each) for each in taken], credit=10_000, pause=True
        )
        assert 0 < request.ByteSize() <= limits.GRPC_MESSAGE_BYTES_MAX
        count += sum(len(offsets_of(each.ranges)) for each in taken)

    assert count == settlements.settled_count == 20_500


async def test_a_request_of_verdicts_and_of_what_is_begun_fits_and_says_nothing_begun_after_its_verdict() -> None:
    handlers = GroupHandlers(HandlerTable(), lambda what, error: False)
    session = SubscriberSession(make_config("a:1", {}), "SG", handlers, bytes(16), lambda attached: None)
    lane = session._settlements.lane(1 << 63, 1 << 62)
    offsets = range(1 << 62, (1 << 62) + 40_000, 2)
    for queue_offset in offsets:
        lane.begin(queue_offset, 1)
    for queue_offset in offsets[:1_000]:
        error = f"{queue_offset} " + "\N{SNOWMAN}" * 1_000
        lane.settle(queue_offset, 1, Verdict(VerdictKind.RETRY, None, error[:1_000]))
    for queue_offset in offsets[1_000:]:
        lane.ack(queue_offset, 1)
    begun: list[int] = []
    settled: list[int] = []
    while session._settlements.has_more:
        request = session._next_request()
        assert 0 < request.ByteSize() <= limits.GRPC_MESSAGE_BYTES_MAX
        ranges = [each.ranges for each in request.begun] + [each.ranges for each in request.settlements]
        assert sum(map(len, ranges)) <= 2 * limits.SETTLEMENT_RANGES_MAX
        begun += [offset for each in request.begun for offset in offsets_of(list(each.ranges))]
        settled += [offset for each in request.settlements for offset in offsets_of(list(each.ranges))]
        assert set(settled) <= set(begun)

    assert sorted(begun) == sorted(settled) == list(offsets)


async def test_nothing_is_confirmed_before_all_that_was_said_is_sent() -> None:
    handlers = GroupHandlers(HandlerTable(), lambda what, error: False)
    session = SubscriberSession(make_config("a:1", {}), "SG", handlers, bytes(16), lambda attached: None)
    lane = session._settlements.lane(7, 1)
    for queue_offset in range(0, 40_000, 2):
        lane.ack(queue_offset, 1)
    confirming = asyncio.ensure_future(session._confirmations.wait())
    await asyncio.sleep(0)

    assert [session._next_request().confirm for _ in range(3)] == [0, 1, 0]
    confirming.cancel()


@pytest.mark.parametrize("error", ["\ud800" * 2_000, ValueError("no text at all"), None])
def test_a_verdict_of_ones_own_with_any_error_is_sent(error: Any) -> None:
    settlements, _ = make()
    settlements.lane(7, 3).settle(1, 1, Verdict(VerdictKind.RETRY, None, error))
    (settled,) = settlements.take(RequestRoom())

    assert 0 < len(settlement_of(settled).error) <= limits.ERROR_TEXT_CHARS_MAX


def test_a_message_handled_twice_does_not_settle_its_neighbour() -> None:
    settlements = Settlements(lambda: None, lambda do: do())
    lane = settlements.lane(1, 1)
    # Offset 5 came twice with the same attempt (its first hand-out timed out unbegun); 6 is still with its handler.
    for offset in (5, 7, 5):
        lane.ack(offset, 1)
    (settled,) = settlements.take(RequestRoom())

    assert settled.ranges == [5, 5, 7, 7]


def test_a_message_rejected_twice_does_not_reject_its_neighbour() -> None:
    settlements = Settlements(lambda: None, lambda do: do())
    lane = settlements.lane(1, 1)
    for offset in (5, 7, 5):
        lane.settle(offset, 1, Verdict(VerdictKind.REJECT, None, "no order number"))
    (settled,) = settlements.take(RequestRoom())

    assert settled.ranges == [5, 5, 7, 7]
