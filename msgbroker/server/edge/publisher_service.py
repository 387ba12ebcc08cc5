"""The gRPC service `Publisher`: frames in, results out, in their order.

Admission happens as a frame arrives, storing in the committer. A stream is read no faster than the committer has room:
gRPC's flow control then slows the publisher down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Any, Final
from urllib.parse import unquote

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
from msgbroker.server.deliver.outgoing import Outgoing
from msgbroker.server.edge.answers import Answers
from msgbroker.server.edge.calls.ending import end_at_once, write
from msgbroker.server.edge.calls.places import Places
from msgbroker.server.edge.decoding import Received, parse_message
from msgbroker.server.edge.frame_reading import FrameReader
from msgbroker.server.edge.refusals import abort_with, refusal_of, refusal_of_stored
from msgbroker.server.log.message import MESSAGE_OVERHEAD_BYTES
from msgbroker.server.publish.admission import Admission, Admitted, Origin, check_origin, refused
from msgbroker.server.publish.byte_budget import ByteBudget
from msgbroker.server.publish.committer import Committer
from msgbroker.server.publish.give_way import GivingWay
from msgbroker.server.publish.known_types import KnownTypes
from msgbroker.v1 import publisher_pb2
from msgdb.append.plan import AppendFrame, FrameResult, Gap, Stored, StoredBefore

PublisherContext = grpc.aio.ServicerContext[Any, Any]
_PUBLISHER_ID_BYTES: Final = 16
_ADMISSIONS_MAX: Final = 256


class PublisherService:
    """Serves publishers: their streams of frames, and their single calls."""

    def __init__(
        self,
        committer: Committer,
        *,
        snapshot: Callable[[], Snapshot],
        learn_event_code: Callable[[TopicRoute, str], None],
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
        self._snapshot = snapshot
        self._learn_event_code = learn_event_code
        self._streams: set[_Stream] = set()
        self._known_types = KnownTypes()
        self._unary_admissions: dict[Origin, Admission] = {}
        self._draining = False

    def follow(self) -> None:
        """Note that the configuration has changed: whoever publishes nothing now need not keep the old one."""
        for stream in self._streams:
            stream.admission.forget()
        self._forget_unary_admissions()

    def _forget_unary_admissions(self) -> None:
        for admission in self._unary_admissions.values():
            admission.forget()
        self._unary_admissions.clear()

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
            with self.places.taken():
                await self._serve(context)
        except MessageCenterError as error:
            await abort_with(context, error)

    async def _serve(self, context: PublisherContext) -> None:
        frames = FrameReader(context, self.arriving)
        answers = Answers(self._outgoing.open(lambda error: end_at_once(context, error)), _encoded_answer)
        try:
            hello = await frames.hello()
            if hello is None:
                return
            self._check_current()
            origin = self._origin_of(hello, context)
            publisher_id = _check_publisher_id(hello.publisher_id)
            admission = self._new_admission(origin)
            stream = _Stream(
                context,
                publisher_id,
                admission=admission,
                check_current=self._check_current,
                committer=self._committer,
                giving_way=GivingWay(self._is_delivery_behind),
                frames=frames,
                answers=answers,
            )
            self._streams.add(stream)
            if self._draining:
                stream.drain()
            try:
                await stream.serve()
            finally:
                self._streams.discard(stream)
                admission.forget()
        finally:
            frames.done()
            answers.outlet.close()

    def check_open(self) -> None:
        """Raise an UnavailableError or BrokerBusyError where no call is taken now."""
        if self._draining:
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
        admission = self._unary_admission(self._origin_of(request, context))
        with self._committer.budget.hold_at_once(_bytes_held(received)) as hold:
            admitted = admission.admit(received.encoded, received.spans, _now_us())
            hold.grow(admitted.more_bytes)
            frame = _append_frame(publisher_id, request.sequence, admitted, received)
            submitted = self._committer.submit(frame, hold)
        result = await submitted
        answer = result_of(request.sequence, result)
        if answer.HasField("failure"):
            raise failure_of(request.sequence, result)
        return answer

    def _unary_admission(self, origin: Origin) -> Admission:
        admission = self._unary_admissions.get(origin)
        if admission is None:
            check_origin(self._snapshot(), origin)
            if len(self._unary_admissions) >= _ADMISSIONS_MAX:
                self._forget_unary_admissions()
            admission = self._unary_admissions[origin] = self._new_admission(origin)
        return admission

    def _new_admission(self, origin: Origin) -> Admission:
        return Admission(
            origin,
            snapshot=self._snapshot,
            learn_event_code=self._learn_event_code,
            parse=parse_message,
            known=self._known_types,
        )

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
        *,
        admission: Admission,
        check_current: Callable[[], None],
        committer: Committer,
        giving_way: GivingWay,
        frames: FrameReader,
        answers: Answers,
    ) -> None:
        self._giving_way = giving_way
        self._frames = frames
        self._answers = answers
        self._context = context
        self._publisher_id = publisher_id
        self.admission = admission
        self._check_current = check_current
        self._committer = committer
        self._say_draining = False
        self._ended = False

    @property
    def is_idle(self) -> bool:
        return self._answers.are_given

    def drain(self) -> None:
        self._say_draining = True
        self._answers.wake.set()

    async def serve(self) -> None:
        """Serve until the publisher ends the stream and all is answered."""
        reader = asyncio.ensure_future(self._read())
        try:
            await self._write()
            await reader
        finally:
            reader.cancel()
            # What is in the committer is stored all the same: the publisher will ask again under the same number.
            self._answers.forget()

    async def _read(self) -> None:
        try:
            while (received := await self._frames.next()) is not None:
                if received.spans:
                    await self._take_in(received)
                # It is not kept here while the next one is awaited, nor its room, whatever there was in it.
                received = None
                self._frames.done()
                await self._giving_way.pause(self.admission.topic_ids)
                await self._answers.room()
        finally:
            self._frames.done()
            self._ended = True
            self._answers.wake.set()

    async def _take_in(self, received: Received[publisher_pb2.PublishFrame]) -> None:
        sequence = received.frame.sequence
        if not sequence:
            raise InvalidRequestFieldError("sequence", "must be given with messages, from 1")
        # In turn with all other streams, and before admission makes objects of it.
        with await self._committer.budget.hold(_bytes_held(received)) as hold:
            self._frames.done()
            # What this raises ends the stream, and the frame does not use its number: the publisher sends it to another
            # broker.
            self._check_current()
            admitted = self._admitted(received)
            hold.grow(admitted.more_bytes)
            frame = _append_frame(self._publisher_id, sequence, admitted, received)
            result = self._committer.submit(frame, hold)
        self._answers.expect(sequence, result, len(admitted.refusals))

    def _admitted(self, received: Received[publisher_pb2.PublishFrame]) -> Admitted:
        try:
            return self.admission.admit(received.encoded, received.spans, _now_us())
        except MessageCenterError as error:
            # The frame as a whole is refused. It still uses its number: those behind it must not wait for it.
            return _refused_whole(error, len(received.spans))

    async def _write(self) -> None:
        answers = self._answers
        while True:
            await answers.wake.wait()
            answers.wake.clear()
            if self._say_draining:
                self._say_draining = False
                await self._write_one(publisher_pb2.PublishResult(draining=True).SerializeToString())
            while answer := answers.next():
                await self._write_one(answer)
            if self._ended and answers.are_given:
                return

    async def _write_one(self, answer: bytes) -> None:
        answers = self._answers
        answers.begin_write(answer)
        await write(self._context, answer)
        answers.written()


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


def _encoded_answer(sequence: int, answer: asyncio.Future[FrameResult]) -> bytes:
    error = answer.exception()
    if error is None:
        return result_of(sequence, answer.result()).SerializeToString()
    if isinstance(error, MessageCenterError):
        return publisher_pb2.PublishResult(sequence=sequence, failure=refusal_of(error)).SerializeToString()
    raise error


def _refused_whole(error: MessageCenterError, count: int) -> Admitted:
    return Admitted([], tuple(refused(index, error) for index in range(count)))


def _append_frame(publisher_id: bytes, sequence: int, admitted: Admitted, received: Received[Any]) -> AppendFrame:
    # By its size a batch is bounded, and given time on its way to the store.
    size_bytes = len(received.encoded)
    return AppendFrame(publisher_id, sequence, admitted.messages, admitted.refusals, size_bytes=size_bytes)


def _bytes_held(received: Received[Any]) -> int:
    """Return what a frame costs in memory until it is stored: as it came in, and as it goes out."""
    return 2 * len(received.encoded) + len(received.spans) * MESSAGE_OVERHEAD_BYTES


def _check_publisher_id(publisher_id: bytes) -> bytes:
    if len(publisher_id) != _PUBLISHER_ID_BYTES:
        raise InvalidRequestFieldError("publisher_id", f"must be {_PUBLISHER_ID_BYTES} random bytes")
    return publisher_id


def _peer_host(peer: str) -> str:
    """Return the host of gRPC's name for a peer: 127.0.0.1 of `ipv4:127.0.0.1:4711`, ::1 of `ipv6:%5B::1%5D:4711`."""
    # It is a URI.
    _, _, address = unquote(peer).partition(":")
    return address.rpartition(":")[0].strip("[]")[: limits.HOST_CHARS_MAX]


def _now_us() -> int:
    return time.time_ns() // 1_000
