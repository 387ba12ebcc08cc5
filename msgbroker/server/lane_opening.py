"""Putting claimed lanes right before they are served."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from uuid import UUID

import structlog

from msgbroker.server.delivery import DeliveryHub
from msgdb.connections import Connection
from msgdb.lane_records import ClaimedLane, OwnedLane
from msgdb.lost_ends import clamp_to_ends

log = structlog.get_logger(__name__)


async def within_log(
    connection: Connection, owner: UUID, claimed: Sequence[ClaimedLane], hub: DeliveryHub
) -> list[ClaimedLane]:
    """Return *claimed*, none of it beyond the end of its queue: a log that lost its end is read again from before.

    Before the redeliveries of the lanes are loaded.
    """
    lanes = [OwnedLane(lane.key, lane.epoch) for lane in claimed]
    ends = await clamp_to_ends(connection, owner, lanes, hub.suspects.names())
    hub.suspects.clear(lane.key for lane in claimed)
    return [lane if lane.key not in ends else _cut_back(lane, ends[lane.key], hub) for lane in claimed]


def _cut_back(lane: ClaimedLane, end: int, hub: DeliveryHub) -> ClaimedLane:
    known_end = max([lane.acked_offset, *(last for _, last in lane.acked_ranges)])
    log.error("lanes.clamped", lane=lane.key, from_offset=known_end, to_offset=end)
    hub.counters.lanes_clamped += 1
    ranges = [(first, min(last, end)) for first, last in lane.acked_ranges if first < end]
    return dataclasses.replace(lane, acked_offset=min(lane.acked_offset, end), acked_ranges=ranges)
