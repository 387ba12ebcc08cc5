"""The gRPC service `Inspection`: what this broker has in memory, told to operators' tools. Nothing is changed by it.

What it tells is names, numbers and times: neither bodies nor keys, headers or errors' texts, which may have parts of
them. An answer costs what is asked for, in stretches between which others have their turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, TypeVar

import grpc

from msgbroker.contract import limits
from msgbroker.contract.errors import InvalidRequestFieldError, MessageCenterError
from msgbroker.contract.whereabouts import Stand
from msgbroker.engine.lane.whereabouts import InFlight
from msgbroker.server import clock
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.edge.inspecting.connected import instance_of, publisher_of
from msgbroker.server.edge.inspecting.pages import Wanted, checked_limit, page_of, page_of_instances, place_of
from msgbroker.server.edge.inspecting.wall_clock import WallClock
from msgbroker.server.edge.publishing.publisher_connection import PublisherConnection
from msgbroker.server.edge.refusals import abort_with
from msgbroker.server.publish.admitted_types import Origin
from msgbroker.v1 import inspection_pb2

ThingT = TypeVar("ThingT")

InspectionContext = grpc.aio.ServicerContext[Any, Any]

_STRETCH: Final = 100
"""So many things are told of without a turn for anybody else: less than a millisecond."""
_STANDS: Final[dict[Stand, inspection_pb2.Stand]] = {
    Stand.NOT_OWNED: inspection_pb2.STAND_NOT_OWNED,
    Stand.UNREAD: inspection_pb2.STAND_UNREAD,
    Stand.READY: inspection_pb2.STAND_READY,
    Stand.IN_FLIGHT: inspection_pb2.STAND_IN_FLIGHT,
    Stand.WAITING: inspection_pb2.STAND_WAITING,
    Stand.SHELVED: inspection_pb2.STAND_SHELVED,
    Stand.SETTLED: inspection_pb2.STAND_SETTLED,
}


class InspectionService:
    """Answers what is where, and who is connected, by this broker's memory."""

    def __init__(self, hub: DeliveryHub, publishers: Callable[[], Collection[PublisherConnection]]) -> None:
        self._hub = hub
        self._publishers = publishers

    async def in_flight(
        self, request: inspection_pb2.InFlightRequest, context: InspectionContext
    ) -> inspection_pb2.InFlightResponse:
        """Return where messages are, as far as their lanes are this broker's."""
        if len(request.places) > limits.INSPECTED_PLACES_MAX:
            error = InvalidRequestFieldError("places", f"must be {limits.INSPECTED_PLACES_MAX} at most")
            await abort_with(context, error)
        response = inspection_pb2.InFlightResponse()
        wall = WallClock()
        for stretch in _stretches(request.places):
            response.stands.extend(self._stand_of(place, wall) for place in stretch)
            await asyncio.sleep(0)
        return response

    async def list_instances(
        self, request: inspection_pb2.ListInstancesRequest, context: InspectionContext
    ) -> inspection_pb2.ListInstancesResponse:
        """Return a page of the instances that are connected."""
        try:
            after, limit = place_of(request.page), checked_limit(request.limit)
        except MessageCenterError as error:
            await abort_with(context, error)
        wanted = Wanted(request.namespace, request.group, request.instance_id)
        found, next_page = page_of_instances(self._hub.groups, wanted, after, limit)
        response = inspection_pb2.ListInstancesResponse(next_page=next_page)
        wall = WallClock()
        for stretch in _stretches(found):
            response.instances.extend(instance_of(attached, wall) for attached in stretch)
            await asyncio.sleep(0)
        return response

    async def list_publishers(
        self, request: inspection_pb2.ListPublishersRequest, context: InspectionContext
    ) -> inspection_pb2.ListPublishersResponse:
        """Return a page of the publishers that have a stream."""
        try:
            after, limit = place_of(request.page), checked_limit(request.limit)
        except MessageCenterError as error:
            await abort_with(context, error)
        wanted = [each for each in self._publishers() if _is_wanted(each.publisher.origin, request)]
        found, next_page = page_of(wanted, after, limit)
        response = inspection_pb2.ListPublishersResponse(next_page=next_page)
        wall = WallClock()
        for stretch in _stretches(found):
            response.publishers.extend(publisher_of(connection, wall) for connection in stretch)
            await asyncio.sleep(0)
        return response

    def _stand_of(self, place: inspection_pb2.MessagePlace, wall: WallClock) -> inspection_pb2.MessageStand:
        group = self._hub.groups.get(place.group_id)
        owned = None if group is None else group.lanes.get(place.queue_id)
        if group is None or owned is None or clock.now() >= owned.lease_until:
            # A lane whose lease has passed is closed with the next tick, and may be another broker's already.
            return inspection_pb2.MessageStand(stand=inspection_pb2.STAND_NOT_OWNED)
        return _stand_in(group, owned, place.queue_offset, wall)


def _stretches(things: Sequence[ThingT]) -> Iterator[Sequence[ThingT]]:
    for first in range(0, len(things), _STRETCH):
        yield things[first : first + _STRETCH]


def _is_wanted(origin: Origin, request: inspection_pb2.ListPublishersRequest) -> bool:
    return request.namespace in {"", origin.namespace} and request.publisher_group in {"", origin.publisher_group}


def _stand_in(
    group: GroupDelivery, owned: OwnedLane, queue_offset: int, wall: WallClock
) -> inspection_pb2.MessageStand:
    found = owned.lane.find(queue_offset)
    stand = inspection_pb2.MessageStand(stand=_STANDS[found.stand], epoch=owned.lane.epoch, attempt=found.attempt)
    if found.due_at is not None:
        stand.due_at_us = wall.us(found.due_at)
    if found.flight is not None:
        _set_flight(stand, group, found.flight, wall)
    return stand


def _set_flight(stand: inspection_pb2.MessageStand, group: GroupDelivery, flight: InFlight, wall: WallClock) -> None:
    instance = group.instances.get(flight.instance_id)
    if instance is not None:
        stand.instance_id, stand.host = instance.instance_id, instance.host
    stand.handed_at_us, stand.deadline_at_us = wall.us(flight.handed_at), wall.us(flight.deadline)
    stand.has_begun = flight.has_begun
