"""Instances that do not read, and what goes over the wire to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import grpc

from msgbroker.client import MessageCenter, OutgoingMessage
from msgbroker.server.app import Broker
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.v1 import subscriber_pb2, subscriber_pb2_grpc
from tests.support.collecting import (
    GROUP,
    PAID,
    TOPIC,
)
from tests.support.eventually import eventually
from tests.support.raw_streams import RawSubscriber

# A client takes in so much before anybody reads, and not 4 MiB.
SMALL_WINDOW = (("grpc.http2.lookahead_bytes", 64 * 1024), ("grpc.http2.bdp_probe", 0))


class Wire:
    """A TCP relay to a broker that counts what the broker sends."""

    def __init__(self) -> None:
        self.address = ""
        self.bytes_down = 0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_down: bool) -> None:
        """Carry bytes until one side ends."""
        try:
            with suppress(OSError):
                while data := await reader.read(65_536):
                    self.bytes_down += is_down * len(data)
                    writer.write(data)
                    await writer.drain()
        finally:
            writer.transport.abort()


@asynccontextmanager
async def wire_to(address: str) -> AsyncIterator[Wire]:
    """Open a relay to the broker at *address*."""
    host, _, port = address.rpartition(":")
    carrying: set[asyncio.Task[None]] = set()
    wire = Wire()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_broker, to_broker = await asyncio.open_connection(host, int(port))
        carrying.add(asyncio.create_task(wire.carry(reader, to_broker, is_down=False)))
        carrying.add(asyncio.create_task(wire.carry(from_broker, writer, is_down=True)))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        wire.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield wire
        for task in carrying:
            task.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)


class UnreadSubscriber:
    """A Subscribe stream that reads nothing until it is told to."""

    def __init__(self, call: Any, wire: Wire) -> None:
        self.call = call
        self.wire = wire
        self.reader: RawSubscriber | None = None

    def read_on(self) -> RawSubscriber:
        """Read from now on."""
        self.reader = RawSubscriber(self.call)
        return self.reader


@asynccontextmanager
async def unread_subscriber(
    wire: Wire, group: str = GROUP, *, instance_id: str = "unread", credit: int = 1_000
) -> AsyncIterator[UnreadSubscriber]:
    """Open a Subscribe stream of an instance that does not read."""
    async with grpc.aio.insecure_channel(wire.address, options=SMALL_WINDOW) as channel:
        call = subscriber_pb2_grpc.SubscriberStub(channel).Subscribe()
        hello = subscriber_pb2.SubscriberHello(group=group, instance_id=instance_id)
        await call.write(subscriber_pb2.SubscribeRequest(hello=hello, credit=credit))
        subscriber = UnreadSubscriber(call, wire)
        try:
            yield subscriber
        finally:
            call.cancel()
            if subscriber.reader is not None:
                await subscriber.reader.vanish()


@asynccontextmanager
async def unread_subscribers(address: str, groups: Sequence[str]) -> AsyncIterator[None]:
    """Open a Subscribe stream for each of *groups*, by instances that never read."""
    async with AsyncExitStack() as stack:
        for number, group in enumerate(groups):
            options = (*SMALL_WINDOW, ("grpc.use_local_subchannel_pool", 1))
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(address, options=options))
            call = subscriber_pb2_grpc.SubscriberStub(channel).Subscribe()
            stack.callback(call.cancel)
            hello = subscriber_pb2.SubscriberHello(group=group, instance_id=f"unread-{number}")
            await call.write(subscriber_pb2.SubscribeRequest(hello=hello, credit=1_000))
        yield


_COUNT = 300


_BODY = "x" * 8_000


async def publish(center: MessageCenter, headers: dict[str, str] | None = None) -> None:
    """Publish more than an instance's outbox takes."""
    messages = [OutgoingMessage(TOPIC, PAID, f"{n}:{_BODY}", headers=headers) for n in range(_COUNT)]
    await center.publish_many(messages)


def instances(broker: Broker) -> list[Instance]:
    """Return all instances of the broker."""
    return [instance for group in broker.hub.groups.values() for instance in group.instances.values()]


async def at_rest(broker: Broker) -> Instance:
    """Return the one instance there is, once it was given all it is given, and the last response to it is stuck."""
    (instance,) = await eventually(lambda: instances(broker))
    seen = -1

    def is_at_rest() -> bool:
        nonlocal seen
        before, seen = seen, instance.unsettled
        return bool(instance.outbox) and before == seen

    await eventually(is_at_rest)
    return instance
