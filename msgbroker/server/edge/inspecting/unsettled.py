"""What the lanes of a group have read and not settled: the oldest of it, of many lanes together.

A lane costs one look at each of its flights and of its records, and something for each message that may be told of;
after each lane, and after each stretch of what is told, others have their turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from msgbroker.contract import limits
from msgbroker.contract.errors import InvalidRequestFieldError
from msgbroker.contract.whereabouts import Stand
from msgbroker.engine.lane.lane import Lane
from msgbroker.engine.lane.whereabouts import Unsettled, WantedUnsettled
from msgbroker.server import clock
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.edge.inspecting.pages import Place, place_of
from msgbroker.server.edge.inspecting.stands import STANDS_BY_NUMBER, stand_of
from msgbroker.server.edge.inspecting.stretches import stretches
from msgbroker.server.edge.inspecting.wall_clock import WallClock
from msgbroker.server.log.message import LogMessage
from msgbroker.v1 import inspection_pb2

_HAS_MORE_BYTES: Final = 2
_BYTES_AROUND_A_MESSAGE: Final = 4
_ALL: Final = frozenset({Stand.READY, Stand.IN_FLIGHT, Stand.WAITING, Stand.SHELVED})


class AskedUnsettled(NamedTuple):
    """What of a group is asked for."""

    queue_ids: frozenset[int]
    """Empty: of all queues."""
    stands: frozenset[Stand]
    instance_id: str
    """Empty: whoever has it."""
    limit: int
    first_queue_id: int
    """Lanes of queues below it were on earlier pages."""


def asked_of(request: inspection_pb2.ListUnsettledRequest) -> AskedUnsettled:
    """Return what is asked for. Raises InvalidRequestFieldError."""
    if request.limit > limits.UNSETTLED_PAGE_MAX:
        raise InvalidRequestFieldError("limit", f"is {request.limit}; {limits.UNSETTLED_PAGE_MAX} at most")
    if len(request.queue_ids) > limits.INSPECTED_PLACES_MAX:
        raise InvalidRequestFieldError("queue_ids", f"must be {limits.INSPECTED_PLACES_MAX} at most")
    return AskedUnsettled(
        frozenset(request.queue_ids),
        # What a newer caller knows, and this broker does not, nothing stands like.
        frozenset(STANDS_BY_NUMBER.get(stand, Stand.UNKNOWN) for stand in request.stands) or _ALL,
        request.instance_id,
        request.limit or limits.UNSETTLED_PAGE_DEFAULT,
        place_of(request.page).serial,
    )


class _Found(NamedTuple):
    """A message of a lane, in the order of all lanes."""

    stored_at_us: int
    queue_id: int
    queue_offset: int
    epoch: int
    message: Unsettled


async def page_of_unsettled(
    group: GroupDelivery, asked: AskedUnsettled, wall: WallClock
) -> inspection_pb2.ListUnsettledResponse:
    """Return a page of what is unsettled in the lanes of *group* that are this broker's."""
    page = inspection_pb2.ListUnsettledResponse()
    oldest: list[_Found] = []
    wanted = _wanted(group, asked)
    for queue_id in sorted(group.lanes):
        if queue_id < asked.first_queue_id or (asked.queue_ids and queue_id not in asked.queue_ids):
            continue
        if len(page.lanes) == limits.UNSETTLED_PAGE_MAX:
            page.next_page = Place(serial=queue_id).text
            break
        # Others had their turn: what was a lane here may be none any more. One that is given up has let go of what it
        # had read: once nobody has anything of it, only the store tells what comes next.
        owned = group.lanes.get(queue_id)
        if owned is None or clock.now() >= owned.lease_until or owned.lane.is_drained:
            continue
        page.lanes.append(_standing(owned.lane))
        # One more than may be told of, to know whether there are more.
        found = _find(owned.lane, wanted, asked.limit + 1)
        page.has_more |= len(oldest) + len(found) > asked.limit
        oldest = sorted(oldest + found)[: asked.limit]
        await asyncio.sleep(0)
    await _tell(page, oldest, group, wall)
    return page


def _standing(lane: Lane[LogMessage]) -> inspection_pb2.LaneUnsettled:
    return inspection_pb2.LaneUnsettled(
        queue_id=lane.key.queue_id,
        epoch=lane.epoch,
        next_offset=lane.next_offset,
        in_flight=lane.in_flight_count,
        ready=lane.ready_count,
        gives_up=lane.is_stopped,
    )


def _wanted(group: GroupDelivery, asked: AskedUnsettled) -> WantedUnsettled:
    if not asked.instance_id:
        return WantedUnsettled(asked.stands)
    names = {name for name, each in group.instances.items() if each.instance_id == asked.instance_id}
    return WantedUnsettled(asked.stands, names)


def _find(lane: Lane[LogMessage], wanted: WantedUnsettled, count_max: int) -> list[_Found]:
    queue_id, epoch = lane.key.queue_id, lane.epoch
    oldest = lane.find_oldest(wanted, count_max)
    return [_Found(each.stored_at_us, queue_id, each.queue_offset, epoch, each) for each in oldest]


async def _tell(
    page: inspection_pb2.ListUnsettledResponse, oldest: Sequence[_Found], group: GroupDelivery, wall: WallClock
) -> None:
    size_bytes = page.ByteSize() + _HAS_MORE_BYTES
    for stretch in stretches(oldest):
        for each in stretch:
            told = _told(each, group, wall)
            size_bytes += told.ByteSize() + _BYTES_AROUND_A_MESSAGE
            if size_bytes > limits.UNSETTLED_PAGE_BYTES_MAX:
                # Names of many bytes.
                page.has_more = True
                return
            page.oldest.append(told)
        await asyncio.sleep(0)


def _told(found: _Found, group: GroupDelivery, wall: WallClock) -> inspection_pb2.UnsettledMessage:
    return inspection_pb2.UnsettledMessage(
        queue_id=found.queue_id,
        queue_offset=found.queue_offset,
        stored_at_us=found.stored_at_us,
        stand=stand_of(group, found.epoch, found.message.where, wall),
    )
