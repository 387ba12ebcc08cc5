"""The gRPC service `Publisher`: who may publish here, streams by their number, and single calls.

Admission happens as a frame arrives, storing in the committer. A stream is read no faster than the committer has room:
gRPC's flow control then slows the publisher down.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final
from urllib.parse import unquote

import grpc

from msgbroker.contract import limits, names
from msgbroker.contract.errors import (
    BrokerUnavailableError,
    InvalidRequestFieldError,
    MessageCenterError,
)
from msgbroker.server.deliver.outgoing import Outgoing
from msgbroker.server.edge.calls.ending import end_at_once
from msgbroker.server.edge.calls.places import Places
from msgbroker.server.edge.decoding import Received
from msgbroker.server.edge.publishing.answers import Answers
from msgbroker.server.edge.publishing.frame_reading import FrameReader
from msgbroker.server.edge.publishing.publisher_connection import (
    Publisher,
    PublisherConnection,
    append_frame,
    bytes_held,
    now_us,
)
from msgbroker.server.edge.publishing.results import encoded_answer, failure_of, result_of
from msgbroker.server.edge.refusals import abort_with
from msgbroker.server.publish.admissions import Admissions
from msgbroker.server.publish.admitted_types import Origin
from msgbroker.server.publish.byte_budget import ByteBudget
from msgbroker.server.publish.committer import Committer
from msgbroker.server.publish.give_way import GivingWay
from msgbroker.v1 import publisher_pb2

PublisherContext = grpc.aio.ServicerContext[Any, Any]
_PUBLISHER_ID_BYTES: Final = 16


class PublisherService:
    """Serves publishers: their streams of frames, and their single calls."""

    def __init__(
        self,
        committer: Committer,
        *,
        admissions: Admissions,
        check_current: Callable[[], None],
        is_delivery_behind: Callable[[Collection[int]], bool],
        outgoing: Outgoing,
        streams_max: int,
    ) -> None:
        self._check_current = check_current
        self._outgoing = outgoing
        self.places = Places("publisher streams", streams_max)
        self.arriving = ByteBudget(committer.budget.bytes_max // 2)
        """For frames that come in parts, until they are whole and have room to wait to be stored."""
        self._is_delivery_behind = is_delivery_behind
        self._committer = committer
        self._admissions = admissions
        self._streams: dict[str, PublisherConnection] = {}
        """Those that are open, by their names."""
        self._is_draining = False

    def follow(self) -> None:
        """Note that the configuration has changed: whoever publishes nothing now need not keep the old one."""
        for stream in self._streams.values():
            stream.admission.forget()
        self._admissions.forget_calls()

    def drain(self) -> None:
        """Tell all publishers to send new frames to other brokers."""
        self._is_draining = True
        for stream in self._streams.values():
            stream.drain()

    @property
    def connections(self) -> Collection[PublisherConnection]:
        """The publishers that have a stream here."""
        return self._streams.values()

    @property
    def connections_by_name(self) -> Mapping[str, PublisherConnection]:
        """The same, by the names of the streams."""
        return self._streams

    @property
    def is_idle(self) -> bool:
        """Whether no stream has a frame that is not answered."""
        return all(stream.is_idle for stream in self._streams.values())

    async def publish_stream(self, _: object, context: PublisherContext) -> None:
        """Serve one publisher's stream."""
        try:
            with self.places.taken():
                await self._serve(context)
        except MessageCenterError as error:
            await abort_with(context, error)

    async def _serve(self, context: PublisherContext) -> None:
        frames = FrameReader(context, self.arriving)
        answers = Answers(self._outgoing.open(lambda error: end_at_once(context, error)), encoded_answer)
        try:
            hello = await frames.hello()
            if hello is None:
                return
            self._check_current()
            origin = _origin_of(hello, context)
            admission = self._admissions.for_stream(origin)
            version = hello.client_version[: limits.CLIENT_VERSION_CHARS_MAX]
            publisher = Publisher(_check_publisher_id(hello.publisher_id), origin, version)
            stream = PublisherConnection(
                context,
                publisher,
                admission=admission,
                check_current=self._check_current,
                committer=self._committer,
                giving_way=GivingWay(self._is_delivery_behind),
                frames=frames,
                answers=answers,
            )
            self._streams[stream.name] = stream
            if self._is_draining:
                stream.drain()
            try:
                await stream.serve()
            finally:
                del self._streams[stream.name]
                admission.forget()
        finally:
            frames.done()
            answers.outlet.close()

    def check_open(self) -> None:
        """Raise an UnavailableError or BrokerBusyError where no call is taken now."""
        if self._is_draining:
            raise BrokerUnavailableError("this broker is stopping: call another one")
        self._check_current()
        self._committer.check_room()

    async def publish(
        self, received: Received[publisher_pb2.PublishRequest], context: PublisherContext
    ) -> publisher_pb2.PublishResult:
        """Store the messages of one call."""
        try:
            # Again: there were others while this one was read.
            self.check_open()
            return await self._publish(received, context)
        except MessageCenterError as error:
            await abort_with(context, error)

    async def _publish(
        self, received: Received[publisher_pb2.PublishRequest], context: PublisherContext
    ) -> publisher_pb2.PublishResult:
        request = received.frame
        if bool(request.publisher_id) != bool(request.sequence):
            raise InvalidRequestFieldError("publisher_id and sequence", "must be given both, or none")
        publisher_id = _check_publisher_id(request.publisher_id) if request.publisher_id else b""
        if not received.spans:
            raise InvalidRequestFieldError("messages", "must not be empty")
        admission = self._admissions.for_call(_origin_of(request, context))
        with self._committer.budget.hold_at_once(bytes_held(received)) as hold:
            admitted = admission.admit(received.encoded, received.spans, now_us())
            hold.grow(admitted.more_bytes)
            frame = append_frame(publisher_id, request.sequence, admitted, received)
            submitted = self._committer.submit(frame, hold)
        result = await submitted
        answer = result_of(request.sequence, result)
        if answer.HasField("failure"):
            raise failure_of(request.sequence, result)
        return answer


def _origin_of(named: publisher_pb2.PublisherHello | publisher_pb2.PublishRequest, context: PublisherContext) -> Origin:
    born_host = named.born_host or _peer_host(context.peer())
    return Origin(named.namespace or names.DEFAULT_NAMESPACE, named.publisher_group, born_host)


def _check_publisher_id(publisher_id: bytes) -> bytes:
    if len(publisher_id) != _PUBLISHER_ID_BYTES:
        raise InvalidRequestFieldError("publisher_id", f"must be {_PUBLISHER_ID_BYTES} random bytes")
    return publisher_id


def _peer_host(peer: str) -> str:
    """Return the host of gRPC's name for a peer: 127.0.0.1 of `ipv4:127.0.0.1:4711`, ::1 of `ipv6:%5B::1%5D:4711`."""
    # It is a URI.
    _, _, address = unquote(peer).partition(":")
    return address.rpartition(":")[0].strip("[]")[: limits.HOST_CHARS_MAX]
