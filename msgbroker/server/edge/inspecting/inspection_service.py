"""The gRPC service `Inspection`: what this broker has in memory, told to operators' tools. Nothing is changed by it.

What it tells is names, numbers and times: neither bodies nor keys, headers or errors' texts, which may have parts of
them. An answer costs what is asked for, in stretches between which others have their turn.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import grpc

from msgbroker.contract import limits
from msgbroker.contract.errors import InvalidRequestFieldError
from msgbroker.contract.whereabouts import Stand
from msgbroker.engine.lane.whereabouts import InFlight
from msgbroker.server import clock
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.edge.refusals import abort_with
from msgbroker.v1 import inspection_pb2

InspectionContext = grpc.aio.ServicerContext[Any, Any]

_STRETCH_PLACES: Final = 100
"""So many places are looked at without a turn for anybody else: less than a millisecond."""
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
    """Answers what is where in this broker's memory."""

    def __init__(self, hub: DeliveryHub) -> None:
        self._hub = hub

    async def in_flight(
        self, request: inspection_pb2.InFlightRequest, context: InspectionContext
    ) -> inspection_pb2.InFlightResponse:
        """Return where messages are, as far as their lanes are this broker's."""
        if len(request.places) > limits.INSPECTED_PLACES_MAX:
            error = InvalidRequestFieldError("places", f"must be {limits.INSPECTED_PLACES_MAX} at most")
            await abort_with(context, error)
        response = inspection_pb2.InFlightResponse()
        wall = WallClock()
        for number, place in enumerate(request.places, 1):
            response.stands.append(self._stand_of(place, wall))
            if number % _STRETCH_PLACES == 0:
                await asyncio.sleep(0)
        return response

    def _stand_of(self, place: inspection_pb2.MessagePlace, wall: WallClock) -> inspection_pb2.MessageStand:
        group = self._hub.groups.get(place.group_id)
        owned = None if group is None else group.lanes.get(place.queue_id)
        if group is None or owned is None or clock.now() >= owned.lease_until:
            # A lane whose lease has passed is closed with the next tick, and may be another broker's already.
            return inspection_pb2.MessageStand(stand=inspection_pb2.STAND_NOT_OWNED)
        return _stand_in(group, owned, place.queue_offset, wall)


class WallClock:
    """Makes moments of the broker's clock into those that people go by."""

    def __init__(self) -> None:
        self._ahead_seconds = time.time() - clock.now()

    def us(self, moment: float) -> int:
        """Return microseconds since 1970."""
        return round((moment + self._ahead_seconds) * 1_000_000)


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
