"""The service `Inspection` on the wire: what it refuses, and that nothing of it holds up others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from msgbroker.server.app import Broker
from msgbroker.v1 import inspection_pb2, inspection_pb2_grpc


@pytest.fixture
async def inspection(broker: Broker) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(broker.address) as channel:
        yield inspection_pb2_grpc.InspectionStub(channel)


def asking(count: int) -> inspection_pb2.InFlightRequest:
    places = [inspection_pb2.MessagePlace(group_id=1, queue_id=2, queue_offset=offset) for offset in range(count)]
    return inspection_pb2.InFlightRequest(places=places)


async def test_each_place_has_its_answer_in_order(inspection: Any) -> None:
    answer = await inspection.InFlight(asking(1_000))

    assert [each.stand for each in answer.stands] == [inspection_pb2.STAND_NOT_OWNED] * 1_000


async def test_more_places_than_may_be_are_refused(inspection: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await inspection.InFlight(asking(1_001))

    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert dict(raised.value.trailing_metadata() or ())["msgcenter-reason"] == "INVALID_FIELD"


@pytest.mark.parametrize("asked", [{"limit": 1_001}, {"queue_ids": range(1_001)}, {"page": "1"}])
async def test_unsettled_messages_beyond_bounds_are_refused(inspection: Any, asked: dict[str, Any]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await inspection.ListUnsettled(inspection_pb2.ListUnsettledRequest(group_id=1, **asked))

    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert dict(raised.value.trailing_metadata() or ())["msgcenter-reason"] == "INVALID_FIELD"


async def test_of_a_group_that_has_no_lanes_there_nothing_is_unsettled(inspection: Any) -> None:
    answer = await inspection.ListUnsettled(inspection_pb2.ListUnsettledRequest(group_id=1))

    assert (list(answer.lanes), answer.next_page) == ([], "")
