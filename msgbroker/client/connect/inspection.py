"""Asking one broker for what only its memory has, for operators' tools: no application needs it.

It is here because the wire is known here and at the broker's front door, and nowhere else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import grpc

from msgbroker.client.connect.channel import connect
from msgbroker.client.connect.failures import from_rpc_error
from msgbroker.client.connect.unreachable import unavailable
from msgbroker.client.values.config import ClientConfig
from msgbroker.contract import limits
from msgbroker.contract.errors import UnavailableCause
from msgbroker.contract.whereabouts import Stand
from msgbroker.v1 import inspection_pb2, inspection_pb2_grpc, subscriber_pb2

_STANDS: Final = {
    inspection_pb2.STAND_NOT_OWNED: Stand.NOT_OWNED,
    inspection_pb2.STAND_UNREAD: Stand.UNREAD,
    inspection_pb2.STAND_READY: Stand.READY,
    inspection_pb2.STAND_IN_FLIGHT: Stand.IN_FLIGHT,
    inspection_pb2.STAND_WAITING: Stand.WAITING,
    inspection_pb2.STAND_SHELVED: Stand.SHELVED,
    inspection_pb2.STAND_SETTLED: Stand.SETTLED,
}


_VERDICTS: Final = {
    subscriber_pb2.VERDICT_ACK: "ACK",
    subscriber_pb2.VERDICT_RETRY: "RETRY",
    subscriber_pb2.VERDICT_RELEASE: "RELEASE",
    subscriber_pb2.VERDICT_REJECT: "REJECT",
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


class UnsettledMessage(NamedTuple):
    """A message that a lane has read and not settled."""

    queue_id: int
    queue_offset: int
    stored_at_us: int
    stand: MessageStand
    """What is due again, and has a redelivery row, is WAITING until it is handed out."""


class LaneUnsettled(NamedTuple):
    """Where a lane stands, as the broker says that owns it."""

    queue_id: int
    epoch: int
    next_offset: int
    """What lies from there on nobody has."""
    in_flight: int
    """How many messages are with instances, whatever was asked for ..."""
    ready: int
    """... and how many are there for the next that has room."""
    gives_up: bool = False
    """Whether it goes to another broker, and has let go of what it had read and nobody has: that is not told."""


@dataclass(frozen=True, slots=True)
class UnsettledPage:
    """What some lanes of a group have not settled."""

    lanes: Sequence[LaneUnsettled]
    oldest: Sequence[UnsettledMessage]
    """Of all these lanes together, by when they were stored."""
    has_more: bool
    """Whether there are more, behind these."""


@dataclass(frozen=True, slots=True)
class WhichUnsettled:
    """What of a group is asked for."""

    group_id: int
    queue_ids: Sequence[int] = ()
    """Of these queues; empty: of all."""
    stands: Collection[Stand] = ()
    """Only what stands so; empty: all of it."""
    instance_id: str = ""
    """Only what this instance has in flight; empty: whoever has it."""


@dataclass(frozen=True, slots=True)
class ConnectedInstance:
    """An instance that is connected to the broker that tells of it. Times are as with `MessageStand`."""

    namespace: str
    group: str
    group_id: int
    instance_id: str
    attachment: str
    """Names this stream (or these pulls) at that broker alone, and never again."""
    host: str
    client_version: str
    since_us: int
    credit: int
    unsettled: int
    settled_per_second: float
    last_verdict: str | None
    """The last one that decided anything: ACK, RETRY, RELEASE, REJECT."""
    last_verdict_at_us: int | None
    paused: bool
    pulls: bool


@dataclass(frozen=True, slots=True)
class ConnectedPublisher:
    """A publisher that has a stream to the broker that tells of it."""

    namespace: str
    publisher_group: str
    publisher_id: str
    """In hexadecimal digits."""
    host: str
    client_version: str
    since_us: int
    unanswered_frames: int
    messages_per_second: float
    attachment: str
    """This stream; empty where its broker is of a version that gives it no name."""


@dataclass(frozen=True, slots=True)
class WhichInstances:
    """Which instances are asked for; what is empty may be any."""

    namespace: str = ""
    group: str = ""
    instance_id: str = ""


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
            response = await self._ask(self._stub.InFlight, inspection_pb2.InFlightRequest(places=asked))
            stands += [_stand_of(stand) for stand in response.stands]
        return stands

    async def list_instances(self, which: WhichInstances, count_max: int) -> list[ConnectedInstance]:
        """Return up to *count_max* of the instances that are connected there. Raises as `in_flight` does."""
        found: list[ConnectedInstance] = []
        request = inspection_pb2.ListInstancesRequest(
            namespace=which.namespace, group=which.group, instance_id=which.instance_id
        )
        while True:
            request.limit = min(limits.CONNECTED_PAGE_MAX, count_max - len(found))
            response = await self._ask(self._stub.ListInstances, request)
            found += [_instance_of(said) for said in response.instances]
            if not response.next_page or len(found) >= count_max:
                return found[:count_max]
            request.page = response.next_page

    async def list_publishers(self, namespace: str, publisher_group: str, count_max: int) -> list[ConnectedPublisher]:
        """Return up to *count_max* of the publishers that have a stream there. Raises as `in_flight` does."""
        found: list[ConnectedPublisher] = []
        request = inspection_pb2.ListPublishersRequest(namespace=namespace, publisher_group=publisher_group)
        while True:
            request.limit = min(limits.CONNECTED_PAGE_MAX, count_max - len(found))
            response = await self._ask(self._stub.ListPublishers, request)
            found += [_publisher_of(said) for said in response.publishers]
            if not response.next_page or len(found) >= count_max:
                return found[:count_max]
            request.page = response.next_page

    async def list_unsettled(self, which: WhichUnsettled, count_max: int) -> list[UnsettledPage]:
        """Return the lanes of a group that are owned there, page by page, with the oldest *count_max* of each page.

        Raises as `in_flight` does.
        """
        request = inspection_pb2.ListUnsettledRequest(
            group_id=which.group_id,
            queue_ids=which.queue_ids,
            stands=[number for number, stand in _STANDS.items() if stand in which.stands],
            instance_id=which.instance_id,
            limit=count_max,
        )
        pages: list[UnsettledPage] = []
        while True:
            response = await self._ask(self._stub.ListUnsettled, request)
            pages.append(_page_of(response))
            if not response.next_page:
                return pages
            request.page = response.next_page

    async def _ask(self, call: Callable[[Any], Awaitable[Any]], request: Any) -> Any:
        try:
            return await call(request)
        except grpc.aio.AioRpcError as error:
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


def _page_of(said: inspection_pb2.ListUnsettledResponse) -> UnsettledPage:
    return UnsettledPage(
        [
            LaneUnsettled(each.queue_id, each.epoch, each.next_offset, each.in_flight, each.ready, each.gives_up)
            for each in said.lanes
        ],
        [
            UnsettledMessage(each.queue_id, each.queue_offset, each.stored_at_us, _stand_of(each.stand))
            for each in said.oldest
        ],
        said.has_more,
    )


def _instance_of(said: inspection_pb2.ConnectedInstance) -> ConnectedInstance:
    return ConnectedInstance(
        namespace=said.namespace,
        group=said.group,
        group_id=said.group_id,
        instance_id=said.instance_id,
        attachment=said.attachment,
        host=said.host,
        client_version=said.client_version,
        since_us=said.since_us,
        credit=said.credit,
        unsettled=said.unsettled,
        settled_per_second=said.settled_per_second,
        last_verdict=_VERDICTS.get(said.last_verdict),
        last_verdict_at_us=said.last_verdict_at_us or None,
        paused=said.paused,
        pulls=said.pulls,
    )


def _publisher_of(said: inspection_pb2.ConnectedPublisher) -> ConnectedPublisher:
    return ConnectedPublisher(
        namespace=said.namespace,
        publisher_group=said.publisher_group,
        publisher_id=said.publisher_id.hex(),
        host=said.host,
        client_version=said.client_version,
        since_us=said.since_us,
        unanswered_frames=said.unanswered_frames,
        messages_per_second=said.messages_per_second,
        attachment=said.attachment,
    )
