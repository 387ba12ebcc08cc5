"""Asking one broker for what only its memory has, for operators' tools: no application needs it.

It is here because the wire is known here and at the broker's front door, and nowhere else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn

import grpc

from msgbroker.client.connect.channel import connect
from msgbroker.client.connect.failures import from_rpc_error
from msgbroker.client.connect.unreachable import unavailable
from msgbroker.client.values.config import ClientConfig
from msgbroker.contract import limits
from msgbroker.contract.errors import UnavailableCause
from msgbroker.contract.whereabouts import Stand
from msgbroker.v1 import inspection_pb2, inspection_pb2_grpc

_STANDS: Final = {
    inspection_pb2.STAND_NOT_OWNED: Stand.NOT_OWNED,
    inspection_pb2.STAND_UNREAD: Stand.UNREAD,
    inspection_pb2.STAND_READY: Stand.READY,
    inspection_pb2.STAND_IN_FLIGHT: Stand.IN_FLIGHT,
    inspection_pb2.STAND_WAITING: Stand.WAITING,
    inspection_pb2.STAND_SHELVED: Stand.SHELVED,
    inspection_pb2.STAND_SETTLED: Stand.SETTLED,
}


class MessagePlace(NamedTuple):
    """A message, in a lane."""

    group_id: int
    queue_id: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class MessageStand:
    """Where a message is, as a broker says. Times are microseconds since 1970, by the clock of its machine."""

    stand: Stand
    epoch: int
    """Of the lane, as that broker owns it; 0: it does not."""
    attempt: int
    """The attempt that is under way, or comes next, from 1; 0: none, or not known there."""
    due_at_us: int | None = None
    """WAITING: when it comes again."""
    instance_id: str = ""
    """IN_FLIGHT: with whom; empty where that instance is gone in this moment."""
    host: str = ""
    handed_at_us: int | None = None
    deadline_at_us: int | None = None
    """IN_FLIGHT: when it is taken back unless it is answered, or kept for longer."""
    has_begun: bool = False
    """Whether the instance has said that it has begun it."""


class Inspector:
    """Asks the broker at the other end of a connection."""

    def __init__(self, channel: grpc.aio.Channel, address: str) -> None:
        self._stub: Any = inspection_pb2_grpc.InspectionStub(channel)
        self._address = address

    async def in_flight(self, places: Sequence[MessagePlace]) -> list[MessageStand]:
        """Return where each of these messages is. Raises an UnavailableError, or ResourceExhaustedError."""
        stands: list[MessageStand] = []
        for first in range(0, len(places), limits.INSPECTED_PLACES_MAX):
            asked = [
                inspection_pb2.MessagePlace(
                    group_id=place.group_id, queue_id=place.queue_id, queue_offset=place.queue_offset
                )
                for place in places[first : first + limits.INSPECTED_PLACES_MAX]
            ]
            try:
                response = await self._stub.InFlight(inspection_pb2.InFlightRequest(places=asked))
            except grpc.aio.AioRpcError as error:
                self._fail(error)
            stands += [_stand_of(stand) for stand in response.stands]
        return stands

    def _fail(self, error: grpc.aio.AioRpcError) -> NoReturn:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            words = "it is of an earlier version, which cannot be asked"
            raise unavailable(self._address, words, UnavailableCause.NOT_A_BROKER) from error
        raise from_rpc_error(error, self._address) from error


@asynccontextmanager
async def open_inspector(address: str, connect_timeout_seconds: float) -> AsyncIterator[Inspector]:
    """Give what asks the broker at *address*. Raises BrokerUnavailableError, which says why it cannot be asked."""
    channel = await connect(address, ClientConfig((address,), connect_timeout_seconds=connect_timeout_seconds))
    try:
        yield Inspector(channel, address)
    finally:
        await channel.close()


def _stand_of(said: inspection_pb2.MessageStand) -> MessageStand:
    return MessageStand(
        # A broker of a later version may know more.
        stand=_STANDS.get(said.stand, Stand.UNKNOWN),
        epoch=said.epoch,
        attempt=said.attempt,
        due_at_us=said.due_at_us or None,
        instance_id=said.instance_id,
        host=said.host,
        handed_at_us=said.handed_at_us or None,
        deadline_at_us=said.deadline_at_us or None,
        has_begun=said.has_begun,
    )
