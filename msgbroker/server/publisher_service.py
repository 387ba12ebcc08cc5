"""The gRPC service `Publisher`: frames in, results out, in their order.

Admission happens as a frame arrives, storing in the committer. A stream is read no faster than the committer has room:
gRPC's flow control then slows the publisher down.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, Final

import grpc

from confdb.routes import Snapshot, TopicRoute
from msgbroker.contract import limits, names
from msgbroker.contract.errors import (
    BrokerUnavailableError,
    FrameForgottenError,
    InvalidRequestFieldError,
    MessageCenterError,
    SequenceGapError,
)
from msgbroker.server.admission import Admission, Admitted, Origin, check_origin
from msgbroker.server.committer import Committer
from msgbroker.server.decoding import Received
from msgbroker.server.grpc_failures import abort_with, refusal_of, refusal_of_stored
from msgbroker.server.log_message import MESSAGE_OVERHEAD_BYTES
from msgbroker.server.pace import Pace
from msgbroker.v1 import message_pb2, publisher_pb2
from msgdb.append_plan import AppendFrame, FrameResult, Gap, Stored, StoredBefore
from msgdb.outcome import Refused

PublisherContext = grpc.aio.ServicerContext[Any, Any]
_PUBLISHER_ID_BYTES: Final = 16
_ADMISSIONS_MAX: Final = 256


class PublisherService:
    """See the module."""

    def __init__(
        self,
        committer: Committer,
        snapshot: Callable[[], Snapshot],
        learn_event_code: Callable[[TopicRoute, str], None],
        is_delivery_behind: Callable[[Collection[int]], bool],
    ) -> None:
        self._is_delivery_behind = is_delivery_behind
        self._committer = committer
        self._snapshot = snapshot
        self._learn_event_code = learn_event_code
        self._streams: set[_Stream] = set()
        self._unary_admissions: dict[Origin, Admission] = {}
        self._draining = False

    def drain(self) -> None:
        """Tell all streams to go elsewhere."""
        self._draining = True
        for stream in self._streams:
            stream.drain()

    @property
    def is_idle(self) -> bool:
        """Whether no stream has a frame that is not answered."""
        return all(stream.is_idle for stream in self._streams)

    async def publish_stream(self, _: object, context: PublisherContext) -> None:
        """Serve one publisher's stream."""
        try:
            first = await context.read()
            if first is grpc.aio.EOF:
                return
            origin = self._origin_of(first.frame.hello, context)
            publisher_id = _check_publisher_id(first.frame.hello.publisher_id)
        except MessageCenterError as error:
            await abort_with(context, error)
        admission = Admission(origin, self._snapshot, self._learn_event_code)
        stream = _Stream(context, publisher_id, admission, self._committer, Pace(self._is_delivery_behind))
        self._streams.add(stream)
        if self._draining:
            stream.drain()
        try:
            await stream.serve(first)
        except MessageCenterError as error:
            await abort_with(context, error)
        finally:
            self._streams.discard(stream)

    async def publish(
        self, received: Received[publisher_pb2.PublishRequest], context: PublisherContext
    ) -> publisher_pb2.PublishResult:
        """Store the messages of one call."""
        try:
            if self._draining:
                raise BrokerUnavailableError("this broker is stopping: call another one")
            self._committer.check_room()
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
        admission = self._unary_admission(self._origin_of(request, context))
        admitted = admission.admit(received.encoded, received.spans, _now_us())
        frame = AppendFrame(publisher_id, request.sequence, admitted.messages, admitted.refusals)
        bytes_held = _bytes_held(received)
        self._committer.room.take(bytes_held)
        result = await self._committer.submit(frame, len(received.encoded), bytes_held)
        answer = result_of(request.sequence, result)
        if answer.HasField("failure"):
            raise failure_of(request.sequence, result)
        return answer

    def _unary_admission(self, origin: Origin) -> Admission:
        admission = self._unary_admissions.get(origin)
        if admission is None:
            check_origin(self._snapshot(), origin)
            if len(self._unary_admissions) >= _ADMISSIONS_MAX:
                self._unary_admissions.clear()
            admission = self._unary_admissions[origin] = Admission(origin, self._snapshot, self._learn_event_code)
        return admission

    def _origin_of(
        self, named: publisher_pb2.PublisherHello | publisher_pb2.PublishRequest, context: PublisherContext
    ) -> Origin:
        born_host = named.born_host or _peer_host(context.peer())
        origin = Origin(named.namespace or names.DEFAULT_NAMESPACE, named.publisher_group, born_host)
        check_origin(self._snapshot(), origin)
        return origin


class _Stream:
    """One publisher's stream: a reader that submits frames, and a writer that answers them in order."""

    def __init__(
        self,
        context: PublisherContext,
        publisher_id: bytes,
        admission: Admission,
        committer: Committer,
        pace: Pace,
    ) -> None:
        self._pace = pace
        self._context = context
        self._publisher_id = publisher_id
        self._admission = admission
        self._committer = committer
        self._unanswered: deque[tuple[int, asyncio.Future[FrameResult]]] = deque()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._say_draining = False
        self._ended = False

    @property
    def is_idle(self) -> bool:
        return not self._unanswered

    def drain(self) -> None:
        self._say_draining = True
        self._wake.set()

    async def serve(self, first: Received[publisher_pb2.PublishFrame]) -> None:
        """Serve until the publisher ends the stream and all is answered."""
        reader = asyncio.ensure_future(self._read(first))
        try:
            await self._write()
            await reader
        finally:
            reader.cancel()
            for _, answer in self._unanswered:
                # What is in the committer is stored all the same: the publisher will ask again under the same number.
                answer.cancel()

    async def _read(self, first: Received[publisher_pb2.PublishFrame]) -> None:
        received: Any = first
        try:
            while received is not grpc.aio.EOF:
                if received.spans:
                    await self._take_in(received)
                    await self._pace.give_way(self._admission.topic_ids)
                while len(self._unanswered) >= limits.FRAMES_UNANSWERED_MAX:
                    self._room.clear()
                    await self._room.wait()
                received = await self._context.read()
        finally:
            self._ended = True
            self._wake.set()

    async def _take_in(self, received: Received[publisher_pb2.PublishFrame]) -> None:
        sequence = received.frame.sequence
        if not sequence:
            raise InvalidRequestFieldError("sequence", "must be given with messages, from 1")
        bytes_held = _bytes_held(received)
        # In turn with all other streams, and before admission makes objects of it.
        await self._committer.room.acquire(bytes_held)
        try:
            admitted = self._admission.admit(received.encoded, received.spans, _now_us())
        except MessageCenterError as error:
            # The frame as a whole is refused. It still uses its number: those behind it must not wait for it.
            admitted = _refused_whole(error, len(received.spans))
        append_frame = AppendFrame(self._publisher_id, sequence, admitted.messages, admitted.refusals)
        answer = self._committer.submit(append_frame, len(received.encoded), bytes_held)
        answer.add_done_callback(self._answered)
        self._unanswered.append((sequence, answer))

    def _answered(self, _: asyncio.Future[FrameResult]) -> None:
        self._wake.set()

    async def _write(self) -> None:
        unanswered = self._unanswered
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._say_draining:
                self._say_draining = False
                await self._context.write(publisher_pb2.PublishResult(draining=True))
            while unanswered and unanswered[0][1].done():
                sequence, answer = unanswered.popleft()
                self._room.set()
                await self._context.write(_answer_of(sequence, answer))
            if self._ended and not unanswered:
                return


def result_of(sequence: int, result: FrameResult) -> publisher_pb2.PublishResult:
    """Return the answer for what became of a frame."""
    if not isinstance(result, Stored):
        return publisher_pb2.PublishResult(sequence=sequence, failure=refusal_of(failure_of(sequence, result)))
    outcome = result.outcome
    return publisher_pb2.PublishResult(
        sequence=sequence,
        first_message_id=outcome.first_message_id,
        stored_at_us=outcome.stored_at_us,
        queue_ids=outcome.queue_ids,
        queue_offsets=outcome.queue_offsets,
        refusals=[
            publisher_pb2.MessageRefusal(index=refused.index, refusal=refusal_of_stored(refused))
            for refused in outcome.refusals
        ],
        duplicate=result.duplicate,
        ahead=[
            publisher_pb2.QueueTime(queue_id=queue_id, stored_at_us=stored_at_us)
            for queue_id, stored_at_us in outcome.ahead_us.items()
        ],
    )


def failure_of(sequence: int, result: FrameResult) -> MessageCenterError:
    """Return the error for a frame that was not stored."""
    if isinstance(result, Gap):
        return SequenceGapError(sequence, result.expected)
    assert isinstance(result, StoredBefore)
    return FrameForgottenError(sequence, result.last_sequence + 1)


def _answer_of(sequence: int, answer: asyncio.Future[FrameResult]) -> publisher_pb2.PublishResult:
    error = answer.exception()
    if error is None:
        return result_of(sequence, answer.result())
    if isinstance(error, MessageCenterError):
        return publisher_pb2.PublishResult(sequence=sequence, failure=refusal_of(error))
    raise error


def _refused_whole(error: MessageCenterError, count: int) -> Admitted:
    refusals = tuple(Refused(index, error.reason, error.status, error.message, error.facts) for index in range(count))
    return Admitted([], refusals)


def _bytes_held(received: Received[Any]) -> int:
    """Return what a frame costs in memory until it is stored: as it came in, and as it goes out."""
    return 2 * len(received.encoded) + len(received.spans) * MESSAGE_OVERHEAD_BYTES


def _check_publisher_id(publisher_id: bytes) -> bytes:
    if len(publisher_id) != _PUBLISHER_ID_BYTES:
        raise InvalidRequestFieldError("publisher_id", f"must be {_PUBLISHER_ID_BYTES} random bytes")
    return publisher_id


def _peer_host(peer: str) -> str:
    """Return the host of gRPC's name for a peer, e.g. 127.0.0.1 of `ipv4:127.0.0.1:4711`."""
    _, _, address = peer.partition(":")
    return address.rpartition(":")[0].strip("[]%")[: limits.HOST_CHARS_MAX]


def _now_us() -> int:
    return time.time_ns() // 1_000


__all__ = ["PublisherService", "failure_of", "message_pb2", "result_of"]
