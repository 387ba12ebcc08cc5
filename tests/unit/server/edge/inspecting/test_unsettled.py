"""What is told of unsettled messages: the oldest, bounded, and others have their turn meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from msgbroker.contract import limits
from msgbroker.contract.errors import InvalidRequestFieldError
from msgbroker.engine.lane.lane import Lane
from msgbroker.engine.matching import Matcher
from msgbroker.server import clock
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.deliver.lanes.rules import lane_config
from msgbroker.server.edge.inspecting.inspection_service import InspectionService
from msgbroker.server.edge.inspecting.unsettled import asked_of
from msgbroker.server.log.message import LogMessage
from msgbroker.v1 import inspection_pb2
from msgdb.lanes.records import ClaimedLane, LaneKey
from tests.support.broker_builders import group_route, log_message, route
from tests.support.loop_turns import turns_during
from tests.support.one_group import QUEUE, OneGroup

CONTEXT: Any = None


def stored(offset: int) -> LogMessage:
    """Return the message at an offset: in all queues it was stored at the same time."""
    message = log_message(offset)
    message.stored_at_us = 1_000 + offset
    return message


class ManyLanes(OneGroup):
    """A group with further lanes, each with as many messages in flight or ready."""

    def __init__(self, lanes: int, each: int, *, instance_id: str = "two", host: str = "") -> None:
        super().__init__()
        self.holder = Instance(instance_id, 1_000_000, 1_000_000, host=host)
        self.group.attach(self.holder, 0.0)
        for queue_id in range(QUEUE + 1, QUEUE + 1 + lanes):
            lane: Lane[LogMessage] = Lane(
                ClaimedLane(LaneKey(1, "", queue_id), 1, 0, []), (), lane_config(group_route()), 0.0
            )
            lane.feed(0, each, [stored(offset) for offset in range(each)])
            lane.take(self.holder.name, max(each // 2, 1), 1 << 40, 0.0)
            self.group.add_lane(OwnedLane(lane, route(), Matcher(group_route(), route()), lambda _: True, 1e9))
        self.service = InspectionService(SimpleNamespace(groups={1: self.group}), list)  # type: ignore[arg-type]

    async def ask(self, **asked: Any) -> inspection_pb2.ListUnsettledResponse:
        request = inspection_pb2.ListUnsettledRequest(group_id=1, **asked)
        with patch.object(clock, "now", lambda: 1.0):
            return await self.service.list_unsettled(request, CONTEXT)

    async def of_queue(self, queue_id: int = QUEUE + 2, **asked: Any) -> list[tuple[int, int]]:
        """Return which messages of one queue are told, and where each stands."""
        told = (await self.ask(queue_ids=[queue_id], **asked)).oldest
        assert {each.queue_id for each in told} <= {queue_id}
        return [(each.queue_offset, each.stand.stand) for each in told]


async def test_the_oldest_of_all_lanes_together_are_told_and_where_each_lane_stands() -> None:
    many = ManyLanes(lanes=30, each=100)

    page = await many.ask(limit=95)

    assert [lane.queue_id for lane in page.lanes] == [QUEUE, *range(QUEUE + 1, QUEUE + 31)]
    lane = page.lanes[1]
    assert (lane.epoch, lane.next_offset, lane.in_flight, lane.ready) == (1, 100, 50, 50)
    everything = [(offset, queue_id) for offset in range(100) for queue_id in range(QUEUE + 1, QUEUE + 31)]
    assert [(each.queue_offset, each.queue_id) for each in page.oldest] == everything[:95]
    assert (page.has_more, page.next_page) == (True, "")


async def test_that_there_are_more_is_told_just_where_there_are() -> None:
    many = ManyLanes(lanes=2, each=3)

    assert [(await many.ask(limit=limit)).has_more for limit in (1, 3, 5, 6, 7)] == [True, True, True, False, False]
    of_one = [(await many.ask(limit=limit, queue_ids=[QUEUE + 1])).has_more for limit in (2, 3)]
    assert of_one == [True, False]


async def test_more_lanes_than_one_page_takes_are_on_further_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UNSETTLED_PAGE_MAX", 4)
    many = ManyLanes(lanes=9, each=2)

    pages = [await many.ask(limit=4)]
    while pages[-1].next_page:
        pages.append(await many.ask(limit=4, page=pages[-1].next_page))

    assert [[lane.queue_id for lane in page.lanes] for page in pages] == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    for page in pages:
        assert {each.queue_id for each in page.oldest} <= {lane.queue_id for lane in page.lanes}
    assert [page.has_more for page in pages] == [True, True, False]


async def test_an_answer_has_no_more_bytes_than_may_be_whatever_names_are_like() -> None:
    # A host that takes four bytes for each of its characters.
    many = ManyLanes(lanes=3, each=2_000, instance_id="i" * 128, host="\U0001f600" * limits.HOST_CHARS_MAX)

    page = await many.ask(limit=1_000, stands=[inspection_pb2.STAND_IN_FLIGHT])

    assert limits.UNSETTLED_PAGE_BYTES_MAX - 2_500 < page.ByteSize() <= limits.UNSETTLED_PAGE_BYTES_MAX
    assert page.has_more
    everything = [(offset, queue_id) for offset in range(1_000) for queue_id in range(QUEUE + 1, QUEUE + 4)]
    told = [(each.queue_offset, each.queue_id) for each in page.oldest]
    assert told == everything[: len(told)]


async def test_others_have_their_turn_after_each_lane_and_stretch() -> None:
    many = ManyLanes(lanes=10, each=300)

    assert await turns_during(lambda: many.ask(limit=1)) >= 10
    assert await turns_during(lambda: many.ask(limit=300, queue_ids=[QUEUE + 1])) >= 4


async def test_only_what_is_asked_for_is_told() -> None:
    many = ManyLanes(lanes=3, each=4)
    flying, ready = inspection_pb2.STAND_IN_FLIGHT, inspection_pb2.STAND_READY

    assert await many.of_queue() == [(0, flying), (1, flying), (2, ready), (3, ready)]
    assert await many.of_queue(stands=[flying]) == [(0, flying), (1, flying)]
    assert await many.of_queue(stands=[ready]) == [(2, ready), (3, ready)]
    assert await many.of_queue(instance_id=many.holder.instance_id) == [(0, flying), (1, flying)]
    assert await many.of_queue(instance_id="nobody") == []
    assert await many.of_queue(stands=[99]) == []
    assert (await many.ask(queue_ids=[QUEUE + 2], stands=[99])).lanes[0].in_flight == 2


async def test_a_group_that_is_not_here_and_a_lane_whose_lease_has_passed_are_not_told_of() -> None:
    many = ManyLanes(lanes=1, each=1)
    many.group.lanes[QUEUE].lease_until = 0.5

    elsewhere = await many.service.list_unsettled(inspection_pb2.ListUnsettledRequest(group_id=2), CONTEXT)

    assert not elsewhere.lanes
    assert [lane.queue_id for lane in (await many.ask()).lanes] == [QUEUE + 1]


async def test_a_lane_that_goes_while_others_have_their_turn_is_left_out() -> None:
    many = ManyLanes(lanes=3, each=1)
    asking = asyncio.create_task(many.ask())
    await asyncio.sleep(0)
    many.group.remove_lane(QUEUE + 3)

    assert QUEUE + 3 not in [lane.queue_id for lane in (await asking).lanes]


@pytest.mark.parametrize("asked", [{"limit": 1_001}, {"queue_ids": range(1_001)}, {"page": "here"}])
def test_what_is_out_of_bounds_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestFieldError):
        asked_of(inspection_pb2.ListUnsettledRequest(group_id=1, **asked))
