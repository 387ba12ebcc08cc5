"""Verdicts as they come in: whatever a client sends, others have their turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from msgbroker.contract.errors import InvalidRequestFieldError
from msgbroker.engine.verdicts import Held, Settlement, Verdict
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.edge.subscribing.verdicts import begin_all, extend_all, settle_all, verdict_of
from msgbroker.v1 import subscriber_pb2
from msgdb.lanes.records import OffsetRange


class Told:
    """Stands for a group: keeps what it was told."""

    def __init__(self) -> None:
        self.settlements: list[Settlement] = []
        self.held: list[Held] = []

    @property
    def ranges(self) -> list[OffsetRange]:
        return [each for held in self.held for each in held.ranges]

    def settle(self, _: Instance, settlement: Settlement, now: float) -> int:
        self.settlements.append(settlement)
        self.held.append(settlement.held)
        return 1

    def begin(self, _: Instance, held: Held) -> None:
        self.held.append(held)

    def extend(self, _: Instance, held: Held, seconds: float, now: float) -> int:
        self.held.append(held)
        return 1


def said(*ranges: int) -> subscriber_pb2.Settlement:
    return subscriber_pb2.Settlement(queue_id=1, epoch=1, attempt=1, verdict=subscriber_pb2.VERDICT_ACK, ranges=ranges)


def begun(*ranges: int) -> subscriber_pb2.Begun:
    return subscriber_pb2.Begun(queue_id=1, epoch=1, attempt=1, ranges=ranges)


async def settle(*settlements: subscriber_pb2.Settlement) -> tuple[list[tuple[int, int]], int]:
    """Return the ranges that were settled, and how many turns others had meanwhile."""
    group = Told()
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count_turns())
    await settle_all(group, Instance("one", 1, 1), settlements)  # type: ignore[arg-type]
    counting.cancel()
    return group.ranges, turns


async def test_what_a_client_usually_sends_is_settled_in_one_go() -> None:
    ranges, turns = await settle(said(0, 4_999), said(*[offset for n in range(100) for offset in (3 * n, 3 * n + 1)]))

    assert (len(ranges), turns) == (101, 0)


async def test_a_range_may_cover_a_batch_with_all_its_gaps() -> None:
    assert await settle(said(7, 7, 8, 1_000_007)) == ([(7, 8), (8, 1_000_008)], 0)


async def test_a_verdict_travels_whole_with_all_it_says_and_all_its_ranges() -> None:
    group = Told()
    wire = subscriber_pb2.Settlement(
        queue_id=7, epoch=3, attempt=2, ranges=[0, 4, 9, 9], verdict=subscriber_pb2.VERDICT_RETRY, delay_ms=1_500,
        error="no\0thing",
    )  # fmt: skip
    await settle_all(group, Instance("one", 1, 1), [wire])  # type: ignore[arg-type]

    error = "no\N{REPLACEMENT CHARACTER}thing"
    assert group.settlements == [Settlement(Held(7, 3, 2, [(0, 5), (9, 10)]), Verdict.RETRY, 1.5, error)]


async def test_of_ranges_that_cannot_be_nothing_is_carried_out_and_all_that_was_said_before_is() -> None:
    group = Told()
    with pytest.raises(InvalidRequestFieldError, match="ascend"):
        await settle_all(group, Instance("one", 1, 1), [said(0, 4), said(7, 9, 8, 8)])  # type: ignore[arg-type]

    assert group.ranges == [(0, 5)]


async def test_no_range_is_lost_or_told_twice_where_others_have_their_turn_in_between() -> None:
    pairs = [(10 * n, 10 * n + n % 7) for n in range(5_000)]
    ranges, turns = await settle(said(*[bound for pair in pairs for bound in pair]))

    assert ranges == [(first, last + 1) for first, last in pairs]
    assert turns


async def test_many_wide_ranges_leave_turns_to_others() -> None:
    ranges, turns = await settle(*[said(0, 9_999)] * 10_000)

    assert len(ranges) == 10_000
    assert turns >= 1_000


async def test_settlements_without_ranges_count_as_well() -> None:
    with pytest.raises(InvalidRequestFieldError, match="10000"):
        await settle(*[said()] * 10_001)


async def test_what_is_begun_is_read_by_the_same_rules() -> None:
    group = Told()
    instance = Instance("one", 1, 1)
    await begin_all(group, instance, [begun(0, 4, 7, 7), begun(9, 9)])  # type: ignore[arg-type]
    assert group.ranges == [(0, 5), (7, 8), (9, 10)]

    for ranges in [(1,), (5, 3), (3, 4, 1, 2), (0, 1_000_000)]:
        with pytest.raises(InvalidRequestFieldError, match="ranges"):
            await begin_all(group, instance, [begun(*ranges)])  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestFieldError, match="10000"):
        await begin_all(group, instance, [begun()] * 10_001)  # type: ignore[arg-type]


async def test_what_is_kept_for_longer_is_read_by_the_same_rules() -> None:
    group = Told()
    instance = Instance("one", 1, 1)
    extensions = [subscriber_pb2.Extension(queue_id=1, epoch=1, ranges=[0, 4], extend_ms=1_000)]
    # It names no message, so it does not matter for how long.
    extensions.append(subscriber_pb2.Extension(queue_id=1, epoch=1))
    await extend_all(group, instance, extensions)  # type: ignore[arg-type]
    assert group.ranges == [(0, 5)]

    with pytest.raises(InvalidRequestFieldError, match="extend_ms"):
        await extend_all(group, instance, [subscriber_pb2.Extension(ranges=[0, 4])])  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [subscriber_pb2.Settlement, subscriber_pb2.SettleRequest])
@pytest.mark.parametrize("immediately", [False, True])
def test_only_what_is_rejected_may_be_called_unreadable(kind: Any, immediately: bool) -> None:
    verdicts = {
        wire: verdict_of(kind(verdict=wire, unreadable=True, immediately=immediately))[0] for wire in range(1, 5)
    }

    assert list(verdicts.values()) == [Verdict.ACK, Verdict.RETRY, Verdict.RELEASE, Verdict.UNREADABLE]
    assert verdict_of(kind(verdict=subscriber_pb2.VERDICT_REJECT))[0] is Verdict.REJECT


async def test_much_that_is_begun_leaves_turns_to_others() -> None:
    group = Told()
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count_turns())
    await begin_all(group, Instance("one", 1, 1), [begun(0, 9_999)] * 10_000)  # type: ignore[arg-type]
    counting.cancel()

    assert turns >= 1_000
