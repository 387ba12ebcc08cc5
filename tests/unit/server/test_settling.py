"""Verdicts as they come in: whatever a client sends, others have their turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from msgbroker.contract.errors import InvalidRequestFieldError
from msgbroker.server.instances import Instance
from msgbroker.server.settling import settle_all
from msgbroker.v1 import subscriber_pb2


class Settled:
    """Stands for a group: keeps the ranges it was told of."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []

    def settle(self, *said: Any) -> int:
        self.ranges.append((said[4], said[5]))
        return 1


def said(*ranges: int) -> subscriber_pb2.Settlement:
    return subscriber_pb2.Settlement(queue_id=1, epoch=1, attempt=1, verdict=subscriber_pb2.VERDICT_ACK, ranges=ranges)


async def settle(*settlements: subscriber_pb2.Settlement) -> tuple[list[tuple[int, int]], int]:
    """Return the ranges that were settled, and how many turns others had meanwhile."""
    group = Settled()
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
    assert await settle(said(7, 7, 8, 1_000_007)) == ([(7, 7), (8, 1_000_007)], 0)


async def test_many_wide_ranges_leave_turns_to_others() -> None:
    ranges, turns = await settle(*[said(0, 9_999)] * 10_000)

    assert len(ranges) == 10_000
    assert turns >= 1_000


async def test_settlements_without_ranges_count_as_well() -> None:
    with pytest.raises(InvalidRequestFieldError, match="10000"):
        await settle(*[said()] * 10_001)
