"""Ours → wire: where a message is."""

from __future__ import annotations

from typing import Final

from msgbroker.contract.whereabouts import Stand
from msgbroker.engine.lane.whereabouts import InFlight, Whereabouts
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.edge.inspecting.wall_clock import WallClock
from msgbroker.v1 import inspection_pb2

_STANDS: Final[dict[Stand, inspection_pb2.Stand]] = {
    Stand.NOT_OWNED: inspection_pb2.STAND_NOT_OWNED,
    Stand.UNREAD: inspection_pb2.STAND_UNREAD,
    Stand.READY: inspection_pb2.STAND_READY,
    Stand.IN_FLIGHT: inspection_pb2.STAND_IN_FLIGHT,
    Stand.WAITING: inspection_pb2.STAND_WAITING,
    Stand.SHELVED: inspection_pb2.STAND_SHELVED,
    Stand.SETTLED: inspection_pb2.STAND_SETTLED,
}
STANDS_BY_NUMBER: Final = {number: stand for stand, number in _STANDS.items()}


def stand_of(group: GroupDelivery, epoch: int, found: Whereabouts, wall: WallClock) -> inspection_pb2.MessageStand:
    """Return what is told of where a message is, in a lane of that epoch."""
    stand = inspection_pb2.MessageStand(stand=_STANDS[found.stand], epoch=epoch, attempt=found.attempt)
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
