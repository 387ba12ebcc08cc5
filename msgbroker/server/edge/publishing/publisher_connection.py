"""One publisher's stream: its frames are submitted as they come, and answered in their order."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import grpc

from msgbroker.contract.errors import DisconnectedError, InvalidRequestFieldError, MessageCenterError
from msgbroker.server import clock
from msgbroker.server.edge.calls.ending import write
from msgbroker.server.edge.decoding import Received
from msgbroker.server.edge.publishing.answers import Answers
from msgbroker.server.edge.publishing.frame_reading import FrameReader
from msgbroker.server.log.message import MESSAGE_OVERHEAD_BYTES
from msgbroker.server.publish.admission import Admission, Admitted, refused
from msgbroker.server.publish.admitted_types import Origin
from msgbroker.server.publish.committer import Committer
from msgbroker.server.publish.give_way import GivingWay
from msgbroker.server.rates import Rate
from msgbroker.v1 import publisher_pb2
from msgdb.append.plan import AppendFrame

_serials = itertools.count(1)

LEAVE_SECONDS: Final = 2.0
"""How long a publisher has that an operator disconnects to go by itself."""


@dataclass(frozen=True, slots=True)
class Publisher:
    """Who publishes by a stream, as its hello says."""

    publisher_id: bytes
    origin: Origin
    client_version: str


class PublisherConnection:
    """One publisher's stream: a reader that submits frames, and a writer that answers them in order."""

    def __init__(
        self,
        context: grpc.aio.ServicerContext[Any, Any],
        publisher: Publisher,
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
        self.publisher = publisher
        self.serial = next(_serials)
        self.name = f"{publisher.publisher_id.hex()}#{self.serial}"
        """A name that no other stream has: a publisher that connects again has another one."""
        self.since = clock.now()
        self.arrived = Rate(self.since)
        """The messages that have come, those that are refused too."""
        self.admission = admission
        self._check_current = check_current
        self._committer = committer
        self._must_say_draining = False
        self._has_ended = False
        self._ending: asyncio.TimerHandle | None = None
        """When it is ended that was told to go by an operator."""
        self._is_left = False
        """Whether nothing more is taken in."""

    @property
    def namespace(self) -> str:
        """The namespace that it publishes in."""
        return self.publisher.origin.namespace

    @property
    def is_idle(self) -> bool:
        """Whether every frame is answered."""
        return self._answers.are_given

    @property
    def unanswered_frames(self) -> int:
        """How many frames are not answered."""
        return self._answers.unanswered_count

    def drain(self) -> None:
        """Tell the publisher to go elsewhere."""
        self._must_say_draining = True
        self._answers.wake.set()

    def disconnect(self) -> None:
        """Have the publisher go elsewhere; after a moment the stream ends, whether it goes or not. Once is enough."""
        if self._ending is None:
            self.drain()
            # What is on its way here is taken in meanwhile, as by a broker that stops: gRPC does not tell a client that
            # writes to an ended stream what it has ended with, and it would take that for trouble.
            self._ending = asyncio.get_running_loop().call_later(LEAVE_SECONDS, self._leave)
        # Who does not read would be told behind what it does not read. A write that is under way says nothing of that:
        # who publishes much is written to nearly always.
        outlet = self._answers.outlet
        outlet.on_stalled(self._end_unread)
        if outlet.is_stalled:
            self._end_unread()

    def _leave(self) -> None:
        self._is_left = True
        self._answers.wake.set()

    def _end_unread(self) -> None:
        self._answers.outlet.end(DisconnectedError())

    async def serve(self) -> None:
        """Serve until the publisher ends the stream, or it is ended here, and all is answered."""
        reader = asyncio.ensure_future(self._read())
        try:
            await self._write()
            if not self._is_left:
                await reader
        finally:
            reader.cancel()
            if self._ending is not None:
                self._ending.cancel()
            # What is in the committer is stored all the same: the publisher will ask again under the same number.
            self._answers.forget()

    async def _read(self) -> None:
        try:
            while (received := await self._frames.next()) is not None and not self._is_left:
                if received.spans:
                    await self._take_in(received)
                # It is not kept here while the next one is awaited, nor its room, whatever there was in it.
                received = None
                self._frames.done()
                await self._giving_way.pause(self.admission.topic_ids)
                await self._answers.room()
        finally:
            self._frames.done()
            self._has_ended = True
            self._answers.wake.set()

    async def _take_in(self, received: Received[publisher_pb2.PublishFrame]) -> None:
        sequence = received.frame.sequence
        if not sequence:
            raise InvalidRequestFieldError("sequence", "must be given with messages, from 1")
        self.arrived.add(len(received.spans), clock.now())
        # In turn with all other streams, and before admission makes objects of it.
        with await self._committer.budget.hold(bytes_held(received)) as hold:
            self._frames.done()
            # What this raises ends the stream, and the frame does not use its number: the publisher sends it to another
            # broker.
            self._check_current()
            admitted = self._admitted(received)
            hold.grow(admitted.more_bytes)
            frame = append_frame(self.publisher.publisher_id, sequence, admitted, received)
            result = self._committer.submit(frame, hold)
        self._answers.expect(sequence, result, len(admitted.refusals))

    def _admitted(self, received: Received[publisher_pb2.PublishFrame]) -> Admitted:
        try:
            return self.admission.admit(received.encoded, received.spans, now_us())
        except MessageCenterError as error:
            # The frame as a whole is refused. It still uses its number: those behind it must not wait for it.
            return _refused_whole(error, len(received.spans))

    async def _write(self) -> None:
        answers = self._answers
        while True:
            await answers.wake.wait()
            answers.wake.clear()
            if self._must_say_draining:
                self._must_say_draining = False
                await self._write_one(publisher_pb2.PublishResult(draining=True).SerializeToString())
            while answer := answers.next():
                await self._write_one(answer)
            # Whoever was told to go while this wrote hears of it before the end.
            if (self._has_ended or self._is_left) and answers.are_given and not self._must_say_draining:
                return

    async def _write_one(self, answer: bytes) -> None:
        answers = self._answers
        answers.begin_write(answer)
        await write(self._context, answer)
        answers.written()


def _refused_whole(error: MessageCenterError, count: int) -> Admitted:
    return Admitted([], tuple(refused(index, error) for index in range(count)))


def append_frame(publisher_id: bytes, sequence: int, admitted: Admitted, received: Received[Any]) -> AppendFrame:
    """Return what was admitted of a frame, as it is submitted."""
    # By its size a batch is bounded, and given time on its way to the store.
    size_bytes = len(received.encoded)
    return AppendFrame(publisher_id, sequence, admitted.messages, admitted.refusals, size_bytes=size_bytes)


def bytes_held(received: Received[Any]) -> int:
    """Return what a frame costs in memory until it is stored: as it came in, and as it goes out."""
    return 2 * len(received.encoded) + len(received.spans) * MESSAGE_OVERHEAD_BYTES


def now_us() -> int:
    """Return the time by this machine's clock, in microseconds since 1970."""
    return time.time_ns() // 1_000
