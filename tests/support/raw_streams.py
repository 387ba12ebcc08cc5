"""The wire without the client around it: for what a well-behaved client does not do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc

from msgbroker.contract import limits
from msgbroker.v1 import publisher_pb2, subscriber_pb2, subscriber_pb2_grpc
from tests.support.collecting import GROUP
from tests.support.eventually import eventually

PUBLISH_STREAM = "/msgbroker.v1.Publisher/PublishStream"


class Given(NamedTuple):
    """A delivery and the lane it came by."""

    queue_id: int
    epoch: int
    delivery: subscriber_pb2.Delivery

    @property
    def body(self) -> str:
        """Its message's body."""
        return self.delivery.message.body.decode()


class RawSubscriber:
    """One Subscribe stream: keeps all it is told, settles only what it is asked to."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self.given: list[Given] = []
        self.told: list[subscriber_pb2.SubscribeResponse] = []
        self.ended: grpc.aio.AioRpcError | None = None
        self._reading = asyncio.create_task(self._read())

    @property
    def bodies(self) -> list[str]:
        """The bodies so far."""
        return [given.body for given in self.given]

    @property
    def has_ended(self) -> bool:
        """Whether the stream has ended."""
        return self._reading.done()

    async def until(self, count: int, seconds: float = 10.0) -> list[Given]:
        """Return what was given once it is *count*."""
        await eventually(lambda: len(self.given) >= count, seconds, what=f"{count} given")
        return self.given

    async def settle(self, *given: Given, verdict: int = subscriber_pb2.VERDICT_ACK, **more: Any) -> None:
        """Give a verdict on each of these."""
        settlements = [
            subscriber_pb2.Settlement(
                queue_id=one.queue_id,
                epoch=one.epoch,
                attempt=one.delivery.attempt or 1,
                verdict=verdict,  # type: ignore[arg-type]
                ranges=[one.delivery.queue_offset, one.delivery.queue_offset],
                **more,
            )
            for one in given
        ]
        await self.send(settlements=settlements)

    async def begin(self, *given: Given) -> None:
        """Say that these are begun."""
        await self.send(
            begun=[
                subscriber_pb2.Begun(
                    queue_id=one.queue_id,
                    epoch=one.epoch,
                    attempt=one.delivery.attempt or 1,
                    ranges=[one.delivery.queue_offset, one.delivery.queue_offset],
                )
                for one in given
            ]
        )

    async def extend(self, *given: Given, extend_ms: int, **more: Any) -> None:
        """Ask to keep each of these for so long."""
        extensions = [
            subscriber_pb2.Extension(
                queue_id=one.queue_id,
                epoch=one.epoch,
                attempt=one.delivery.attempt or 1,
                ranges=[one.delivery.queue_offset, one.delivery.queue_offset],
                extend_ms=extend_ms,
            )
            for one in given
        ]
        await self.send(extensions=extensions, **more)

    async def send(self, **request: Any) -> None:
        """Send a request."""
        await self._call.write(subscriber_pb2.SubscribeRequest(**request))

    async def leave(self) -> None:
        """End the stream in good order, and see the broker end it, too."""
        await self._call.done_writing()
        await asyncio.wait([self._reading])

    async def vanish(self) -> None:
        """End the stream without a word."""
        self._call.cancel()
        await asyncio.wait([self._reading])

    async def _read(self) -> None:
        try:
            while (response := await self._call.read()) is not grpc.aio.EOF:
                self.told.append(response)
                for batch in response.batches:
                    self.given += [Given(batch.queue_id, batch.epoch, delivery) for delivery in batch.deliveries]
        except grpc.aio.AioRpcError as error:
            self.ended = error
        except asyncio.CancelledError:
            # Its own doing: `vanish`.
            return


@asynccontextmanager
async def raw_subscriber(
    address: str, group: str = GROUP, *, instance_id: str = "raw", credit: int = 100, **more: Any
) -> AsyncIterator[RawSubscriber]:
    """Open a Subscribe stream; *more* goes into its hello."""
    async with grpc.aio.insecure_channel(address) as channel:
        call = subscriber_pb2_grpc.SubscriberStub(channel).Subscribe()
        hello = subscriber_pb2.SubscriberHello(group=group, instance_id=instance_id, **more)
        await call.write(subscriber_pb2.SubscribeRequest(hello=hello, credit=credit))
        subscriber = RawSubscriber(call)
        try:
            yield subscriber
        finally:
            await subscriber.vanish()


class RawPublisher:
    """One PublishStream, frame by frame."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def send(self, sequence: int, messages: Sequence[Any], **hello: Any) -> None:
        """Send a frame, in parts if it is large; with *hello* the first one of a stream."""
        frame = publisher_pb2.PublishFrame(sequence=sequence, messages=messages)
        if hello:
            frame.hello.CopyFrom(publisher_pb2.PublisherHello(**hello))
        for part in parts_of(frame.SerializeToString()):
            await self._call.write(part)

    async def send_encoded(self, frame: bytes) -> None:
        """Send a frame as it is, readable or not."""
        await self._call.write(frame)

    async def answer(self) -> publisher_pb2.PublishResult:
        """Return the next answer."""
        async with asyncio.timeout(10):
            answer = await self._call.read()
        assert answer is not grpc.aio.EOF
        assert isinstance(answer, publisher_pb2.PublishResult)
        return answer

    async def end(self) -> tuple[grpc.StatusCode, dict[str, Any]]:
        """Return how the broker ended the stream: status and trailing metadata."""
        async with asyncio.timeout(10):
            return await self._call.code(), dict(await self._call.trailing_metadata())

    async def details(self) -> str:
        """Return what the broker said when it ended the stream."""
        return str(await self._call.details())

    async def done(self) -> None:
        """Say that no further frame comes."""
        await self._call.done_writing()


def parts_of(encoded: bytes, part_bytes: int = limits.FRAME_PART_BYTES_MAX) -> list[bytes]:
    """Return an encoded frame as it is sent: itself, or if it is larger than *part_bytes*, its parts."""
    if len(encoded) <= part_bytes:
        return [encoded]
    parts = [
        publisher_pb2.PublishFrame(part=encoded[at : at + part_bytes]) for at in range(0, len(encoded), part_bytes)
    ]
    parts[0].frame_bytes = len(encoded)
    return [part.SerializeToString() for part in parts]


@asynccontextmanager
async def raw_publisher(address: str, options: Sequence[tuple[str, int]] = ()) -> AsyncIterator[RawPublisher]:
    """Open a PublishStream; the first frame says hello."""
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        call = channel.stream_stream(
            PUBLISH_STREAM,
            request_serializer=_encoded,
            response_deserializer=publisher_pb2.PublishResult.FromString,
        )()
        try:
            yield RawPublisher(call)
        finally:
            call.cancel()


def _encoded(frame: publisher_pb2.PublishFrame | bytes) -> bytes:
    return frame if isinstance(frame, bytes) else frame.SerializeToString()
