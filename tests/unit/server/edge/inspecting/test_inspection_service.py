"""What the service tells, and that others have their turn while it does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from msgbroker.contract.whereabouts import Stand
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.edge.inspecting.inspection_service import InspectionService
from msgbroker.v1 import inspection_pb2
from tests.support.loop_turns import turns_during
from tests.support.one_group import QUEUE, OneGroup


def service_of(one: OneGroup, group_id: int = 1) -> InspectionService:
    return InspectionService(SimpleNamespace(groups={group_id: one.group}), list)  # type: ignore[arg-type]


def asking(*offsets: int, group_id: int = 1, queue_id: int = QUEUE) -> inspection_pb2.InFlightRequest:
    places = [
        inspection_pb2.MessagePlace(group_id=group_id, queue_id=queue_id, queue_offset=offset) for offset in offsets
    ]
    return inspection_pb2.InFlightRequest(places=places)


async def test_others_have_their_turn_within_every_hundred_things() -> None:
    one = OneGroup()
    for number in range(500):
        one.group.attach(Instance(f"i{number}", 10, 1_000), 0.0)
    service = service_of(one)
    context: Any = None

    request = inspection_pb2.ListInstancesRequest(limit=500)
    assert await turns_during(lambda: service.list_instances(request, context)) >= 5
    assert await turns_during(lambda: service.in_flight(asking(*range(1_000)), context)) >= 10


@pytest.mark.parametrize("asked", [asking(0, group_id=2), asking(0, queue_id=QUEUE + 1)])
async def test_a_lane_that_is_not_here_is_not_owned(asked: inspection_pb2.InFlightRequest) -> None:
    context: Any = None
    (stand,) = (await service_of(OneGroup()).in_flight(asked, context)).stands

    assert (stand.stand, stand.epoch) == (inspection_pb2.STAND_NOT_OWNED, 0)


async def test_a_lane_whose_lease_has_passed_is_not_owned_any_more() -> None:
    one = OneGroup()
    context: Any = None
    before = (await service_of(one).in_flight(asking(0), context)).stands[0]
    one.group.lanes[QUEUE].lease_until = 0.0
    after = (await service_of(one).in_flight(asking(0), context)).stands[0]

    assert (before.stand, before.epoch) == (inspection_pb2.STAND_UNREAD, 1)
    assert after.stand == inspection_pb2.STAND_NOT_OWNED


async def test_an_instance_that_was_closed_and_whose_lane_is_given_up_is_told_of_as_holding_nothing() -> None:
    one = OneGroup()
    one.commit(0, 3)
    assert one.pump() == 3
    assert one.write() == 3
    # As its group is deleted, and it does not read.
    one.instance.close()
    one.group.remove_lane(QUEUE)
    context: Any = None

    (told,) = (await service_of(one).list_instances(inspection_pb2.ListInstancesRequest(), context)).instances

    assert told.unsettled == 0


def test_each_stand_has_its_number_on_the_wire() -> None:
    names = {name.removeprefix("STAND_") for name in inspection_pb2.Stand.keys()}  # noqa: SIM118 - not a mapping

    assert names - {"UNSPECIFIED"} == {stand.name for stand in Stand} - {"UNKNOWN"}


def test_nothing_of_what_messages_say_has_a_place_in_what_is_told() -> None:
    told = {
        field.name for message in inspection_pb2.DESCRIPTOR.message_types_by_name.values() for field in message.fields
    }

    assert not [name for name in told if any(word in name for word in ("body", "key", "header", "error", "content"))]
    assert not [
        field.message_type.full_name
        for message in inspection_pb2.DESCRIPTOR.message_types_by_name.values()
        for field in message.fields
        if field.message_type is not None and field.message_type.file is not inspection_pb2.DESCRIPTOR
    ]
