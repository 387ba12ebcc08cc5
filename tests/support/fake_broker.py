"""A gRPC server in this process that stores in memory and misbehaves as a test asks it to.

It keeps the rules the client relies on (a frame is stored once, and only the next number), not the broker's many
others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import grpc

from msgbroker.v1 import (
    directory_pb2,
    directory_pb2_grpc,
    message_pb2,
    publisher_pb2,
    publisher_pb2_grpc,
    subscriber_pb2,
    subscriber_pb2_grpc,
)

FrameHook = Callable[[publisher_pb2.PublishFrame], str | None]
"""Told of each frame before it is stored; returns a reason to fail it with, `die` to end the stream before storing,
`die-after` to store and end without an answer, `told-end` or `told-die` to say that it drains, and then end the stream
before storing, in good order or not."""


@dataclass
class FakeStore:
    """What all fake brokers of a test share: the log and what became of the publishers' frames."""

    messages: list[message_pb2.Message] = field(default_factory=list)
    results: dict[tuple[bytes, int], publisher_pb2.PublishResult] = field(default_factory=dict)
    last_sequence: dict[bytes, int] = field(default_factory=dict)

    def store(self, publisher_id: bytes, frame: publisher_pb2.PublishFrame) -> publisher_pb2.PublishResult:
        """Store a frame as a broker does."""
        last = self.last_sequence.get(publisher_id, 0)
        if frame.sequence <= last:
            repeat = publisher_pb2.PublishResult()
            repeat.CopyFrom(self.results[publisher_id, frame.sequence])
            repeat.duplicate = True
            return repeat
        if frame.sequence != last + 1:
            return failed(frame.sequence, "SEQUENCE_GAP", expected=str(last + 1))
        self.last_sequence[publisher_id] = frame.sequence
        first = len(self.messages)
        result = publisher_pb2.PublishResult(
            sequence=frame.sequence, first_message_id=(1 << 64 | first).to_bytes(16, "big"), stored_at_us=1
        )
        for index, message in enumerate(frame.messages):
            if message.event_code == "EC_UNKNOWN":
                result.refusals.append(
                    publisher_pb2.MessageRefusal(index=index, refusal=refusal("EVENT_CODE_NOT_FOUND", "NOT_FOUND"))
                )
                result.queue_ids.append(0)
                result.queue_offsets.append(0)
                continue
            self.messages.append(message)
            result.queue_ids.append(7)
            result.queue_offsets.append(len(self.messages) - 1)
        self.results[publisher_id, frame.sequence] = result
        return result


def refusal(reason: str, status: str, *, retryable: bool = False, **facts: str) -> message_pb2.Refusal:
    """Return a refusal as the wire has it."""
    return message_pb2.Refusal(reason=reason, status=status, message=f"fake {reason}", retryable=retryable, facts=facts)


def failed(sequence: int, reason: str, **facts: str) -> publisher_pb2.PublishResult:
    """Return the answer to a frame that was not stored."""
    status = {"STORE_UNAVAILABLE": "UNAVAILABLE", "SEQUENCE_GAP": "FAILED_PRECONDITION"}.get(reason, "INVALID_ARGUMENT")
    retryable = status in {"UNAVAILABLE", "FAILED_PRECONDITION"}
    return publisher_pb2.PublishResult(sequence=sequence, failure=refusal(reason, status, retryable=retryable, **facts))


class SubscribeCall:
    """One Subscribe stream as the fake sees it: a test pushes responses and reads requests."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.hello: subscriber_pb2.SubscriberHello | None = None
        self.credits: list[int] = []
        self.settlements: list[subscriber_pb2.Settlement] = []
        self.begun: list[tuple[int, int]] = []
        """(offset, attempt), in the order it was said."""
        self.extended: list[tuple[int, int, int]] = []
        """(offset, attempt, extend_ms), in the order it was said."""
        self.requests_with_begun: list[subscriber_pb2.SubscribeRequest] = []
        self.paused = False
        self.half_closed = asyncio.Event()
        self.changed = asyncio.Condition()
        self._responses: asyncio.Queue[subscriber_pb2.SubscribeResponse | None] = asyncio.Queue()

    def push(self, response: subscriber_pb2.SubscribeResponse) -> None:
        """Send a response."""
        self._responses.put_nowait(response)

    def deliver(
        self,
        *bodies: bytes,
        first: int = 0,
        attempt: int = 1,
        event_code: str = "EC",
        epoch: int = 1,
        suspect: bool = False,
    ) -> None:
        """Push a batch of messages of queue 7 with these bodies at offsets from *first* on."""
        self.push(
            subscriber_pb2.SubscribeResponse(
                batches=[
                    subscriber_pb2.DeliveryBatch(
                        queue_id=7,
                        epoch=epoch,
                        suspect=suspect,
                        deliveries=[
                            subscriber_pb2.Delivery(
                                message=message_pb2.Message(topic="TP", event_code=event_code, body=body),
                                queue_offset=first + index,
                                message_id=(first + index).to_bytes(16, "big"),
                                attempt=attempt,
                            )
                            for index, body in enumerate(bodies)
                        ],
                    )
                ]
            )
        )

    def end(self) -> None:
        """End the stream as a broker that stops does."""
        self._responses.put_nowait(None)

    async def settled(self, count: int) -> list[tuple[int, int, int]]:
        """Wait until so many offsets were settled; return (offset, verdict, attempt) sorted."""
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.verdicts) >= count)
        return self.verdicts

    @property
    def verdicts(self) -> list[tuple[int, int, int]]:
        """What was settled so far: (offset, verdict, attempt) sorted."""
        return sorted(
            (offset, settlement.verdict, settlement.attempt)
            for settlement in self.settlements
            for offset in _offsets_of(settlement.ranges)
        )

    async def read(self, requests: AsyncIterator[subscriber_pb2.SubscribeRequest]) -> None:
        """Take what the client sends."""
        async for request in requests:
            async with self.changed:
                if request.HasField("hello"):
                    self.hello = request.hello
                    self.broker.subscribe_calls.put_nowait(self)
                if request.credit:
                    self.credits.append(request.credit)
                self.paused = self.paused or request.pause
                self.settlements.extend(request.settlements)
                if request.begun:
                    self.requests_with_begun.append(request)
                for more in request.extensions:
                    self.extended += [(o, more.attempt, more.extend_ms) for o in _offsets_of(more.ranges)]
                for begun in request.begun:
                    self.begun += [(o, begun.attempt) for o in _offsets_of(begun.ranges)]
                self.changed.notify_all()
            if request.confirm and self.broker.confirms:
                self.push(subscriber_pb2.SubscribeResponse(confirmed=request.confirm))
        self.half_closed.set()
        self._responses.put_nowait(subscriber_pb2.SubscribeResponse())
        self._responses.put_nowait(None)

    async def responses(self) -> AsyncIterator[subscriber_pb2.SubscribeResponse]:
        """Return what is to be sent."""
        while (response := await self._responses.get()) is not None:
            yield response


def _offsets_of(ranges: Sequence[int]) -> list[int]:
    return [offset for first, last in zip(ranges[::2], ranges[1::2], strict=True) for offset in range(first, last + 1)]


class FakeBroker(
    publisher_pb2_grpc.PublisherServicer, subscriber_pb2_grpc.SubscriberServicer, directory_pb2_grpc.DirectoryServicer
):
    """A broker at a port of its own; `async with` starts and stops it."""

    def __init__(self, store: FakeStore | None = None, on_frame: FrameHook | None = None) -> None:
        self.store = store or FakeStore()
        self.on_frame = on_frame
        self.hellos: list[publisher_pb2.PublisherHello] = []
        self.frames: list[publisher_pb2.PublishFrame] = []
        self.listed: list[str] = []
        self.registered: list[directory_pb2.RegisterRequest] = []
        self.refuse_hello: tuple[grpc.StatusCode, tuple[tuple[str, Any], ...]] | None = None
        self.attached = subscriber_pb2.Attached(unsettled_max=1_000, ack_timeout_ms=60_000)
        self.subscribe_calls: asyncio.Queue[SubscribeCall] = asyncio.Queue()
        self.confirms = True
        self.answers_held = asyncio.Event()
        self.answers_held.set()
        self.address = ""
        self._server: grpc.aio.Server | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, address: str = "127.0.0.1:0") -> None:
        """Listen."""
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        publisher_pb2_grpc.add_PublisherServicer_to_server(self, self._server)
        subscriber_pb2_grpc.add_SubscriberServicer_to_server(self, self._server)
        directory_pb2_grpc.add_DirectoryServicer_to_server(self, self._server)
        port = self._server.add_insecure_port(address)
        self.address = f"127.0.0.1:{port}"
        await self._server.start()

    async def stop(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def PublishStream(  # the method's name in the proto
        self, requests: AsyncIterator[publisher_pb2.PublishFrame], context: Any
    ) -> AsyncIterator[publisher_pb2.PublishResult]:
        """Store frames, or whatever the test's hook says."""
        publisher_id = b""
        async for frame in requests:
            if frame.HasField("hello"):
                self.hellos.append(frame.hello)
                publisher_id = frame.hello.publisher_id
                if self.refuse_hello is not None:
                    status, metadata = self.refuse_hello
                    await context.abort(status, "fake refusal", metadata)
            if not frame.messages:
                continue
            self.frames.append(frame)
            reason = self.on_frame(frame) if self.on_frame else None
            if reason == "die":
                await context.abort(grpc.StatusCode.UNAVAILABLE, "fake death")
            if reason in {"told-die", "told-end"}:
                yield publisher_pb2.PublishResult(draining=True)
                if reason == "told-end":
                    return
                await context.abort(grpc.StatusCode.UNAVAILABLE, "fake death")
            if reason == "die-after":
                self.store.store(publisher_id, frame)
                await context.abort(grpc.StatusCode.UNAVAILABLE, "fake death")
            if reason == "too-large":
                told = (("msgcenter-reason", "FRAME_TOO_LARGE"),)
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "fake refusal", told)
            if reason is not None and reason != "drain":
                yield failed(frame.sequence, reason)
                continue
            await self.answers_held.wait()
            result = self.store.store(publisher_id, frame)
            if reason == "drain":
                result.draining = True
            yield result

    async def Subscribe(
        self, requests: AsyncIterator[subscriber_pb2.SubscribeRequest], context: Any
    ) -> AsyncIterator[subscriber_pb2.SubscribeResponse]:
        """Hand the stream to the test."""
        if self.refuse_hello is not None:
            status, metadata = self.refuse_hello
            await context.abort(status, "fake refusal", metadata)
        call = SubscribeCall(self)
        reading = asyncio.ensure_future(call.read(requests))
        try:
            yield subscriber_pb2.SubscribeResponse(attached=self.attached)
            async for response in call.responses():
                yield response
        finally:
            reading.cancel()

    async def ListBrokers(
        self, request: directory_pb2.ListBrokersRequest, context: Any
    ) -> directory_pb2.ListBrokersResponse:
        """Tell of the brokers in `listed`."""
        return directory_pb2.ListBrokersResponse(
            brokers=[directory_pb2.Broker(broker_id=address, address=address) for address in self.listed]
        )

    async def Register(self, request: directory_pb2.RegisterRequest, context: Any) -> directory_pb2.RegisterResponse:
        """Keep what was asked for."""
        self.registered.append(request)
        return directory_pb2.RegisterResponse(created=["topic"])


class ThreadedBroker(FakeBroker):
    """A fake broker and the loop of its thread."""

    loop: asyncio.AbstractEventLoop
