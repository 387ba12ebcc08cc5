"""The gRPC service `Inspection`: what this broker has in memory, told to operators' tools. Nothing is changed by it.

What it tells is names, numbers and times: neither bodies nor keys, headers or errors' texts, which may have parts of
them. An answer costs what is asked for, in stretches between which others have their turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import grpc

from msgbroker.contract import limits
from msgbroker.contract.errors import InvalidRequestFieldError, MessageCenterError
from msgbroker.server import clock
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.edge.inspecting.connected import instance_of, publisher_of
from msgbroker.server.edge.inspecting.pages import Wanted, checked_limit, page_of, page_of_instances, place_of
from msgbroker.server.edge.inspecting.stands import stand_of
from msgbroker.server.edge.inspecting.stretches import stretches
from msgbroker.server.edge.inspecting.unsettled import asked_of, page_of_unsettled
from msgbroker.server.edge.inspecting.wall_clock import WallClock
from msgbroker.server.edge.publishing.publisher_connection import PublisherConnection
from msgbroker.server.edge.refusals import abort_with
from msgbroker.server.publish.admitted_types import Origin
from msgbroker.v1 import inspection_pb2

InspectionContext = grpc.aio.ServicerContext[Any, Any]


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
        for stretch in stretches(request.places):
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
        for stretch in stretches(found):
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
        for stretch in stretches(found):
            response.publishers.extend(publisher_of(connection, wall) for connection in stretch)
            await asyncio.sleep(0)
        return response

    async def list_unsettled(
        self, request: inspection_pb2.ListUnsettledRequest, context: InspectionContext
    ) -> inspection_pb2.ListUnsettledResponse:
        """Return a page of what a group has not settled, as far as its lanes are this broker's."""
        try:
            asked = asked_of(request)
        except MessageCenterError as error:
            await abort_with(context, error)
        group = self._hub.groups.get(request.group_id)
        if group is None:
            return inspection_pb2.ListUnsettledResponse()
        return await page_of_unsettled(group, asked, WallClock())

    def _stand_of(self, place: inspection_pb2.MessagePlace, wall: WallClock) -> inspection_pb2.MessageStand:
        group = self._hub.groups.get(place.group_id)
        owned = None if group is None else group.lanes.get(place.queue_id)
        if group is None or owned is None or clock.now() >= owned.lease_until:
            # A lane whose lease has passed is closed with the next tick, and may be another broker's already.
            return inspection_pb2.MessageStand(stand=inspection_pb2.STAND_NOT_OWNED)
        return stand_of(group, owned.lane.epoch, owned.lane.find(place.queue_offset), wall)


def _is_wanted(origin: Origin, request: inspection_pb2.ListPublishersRequest) -> bool:
    return request.namespace in {"", origin.namespace} and request.publisher_group in {"", origin.publisher_group}
