"""Whatever waits for a client: one that takes in as much as is documented is never sent more, or it would be stuck."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter, OutgoingMessage, Receipt
from msgbroker.contract import limits
from msgbroker.server.app import Broker
from msgbroker.v1 import subscriber_pb2, subscriber_pb2_grpc
from tests.support.collecting import GROUP, PAID, register_group, register_topic
from tests.support.raw_streams import RawSubscriber

LARGE = "TP_LARGE"
HEADERS = {f"x-header-{number:02}": "v" * 50 for number in range(60)}

pytestmark = pytest.mark.parametrize(
    "receive_bytes_max, body_bytes",
    [(limits.RECEIVE_BYTES_MIN, limits.BODY_BYTES_CEILING), (4 * 1024 * 1024, 4_000_000)],
    ids=["documented", "of gRPC itself"],
)


def channel_of(broker: Broker, receive_bytes_max: int) -> grpc.aio.Channel:
    """Open a channel that takes in no larger gRPC messages."""
    options = (("grpc.max_receive_message_length", receive_bytes_max), ("grpc.use_local_subchannel_pool", 1))
    return grpc.aio.insecure_channel(broker.address, options=options)


async def publish_mixed(config: ConfigService, center: MessageCenter, body_bytes: int) -> int:
    """Publish many small messages and some large ones between them, for the group; return how many."""
    await register_topic(config, LARGE, queue_count=1, body_bytes_max=limits.BODY_BYTES_CEILING)
    await register_group(config, topic=LARGE)
    bodies: list[bytes] = []
    for _ in range(3):
        bodies += [b"s" * 8_000] * 60 + [b"l" * body_bytes] * 2
    answers = await center.publish_many(OutgoingMessage(LARGE, PAID, body, headers=HEADERS) for body in bodies)
    assert all(isinstance(answer, Receipt) for answer in answers)
    return len(bodies)


async def test_pulls_get_no_more_at_a_time_than_a_client_takes_in(
    config: ConfigService, broker: Broker, receive_bytes_max: int, body_bytes: int
) -> None:
    async with MessageCenter(broker.address) as center:
        count = await publish_mixed(config, center, body_bytes)
    offsets: list[int] = []
    async with channel_of(broker, receive_bytes_max) as channel, asyncio.timeout(60):
        stub: Any = subscriber_pb2_grpc.SubscriberStub(channel)
        while len(offsets) < count:
            request = subscriber_pb2.PullRequest(
                group=GROUP, instance_id="one", messages_max=limits.PULL_MESSAGES_MAX, wait_ms=5_000
            )
            pulled = (await stub.Pull(request)).messages
            assert all(message.delivery.attempt in {0, 1} for message in pulled)
            offsets += [message.delivery.queue_offset for message in pulled]
            if pulled:
                receipts = [message.receipt for message in pulled]
                settle = subscriber_pb2.SettleRequest(
                    group=GROUP, instance_id="one", receipts=receipts, verdict=subscriber_pb2.VERDICT_ACK
                )
                assert (await stub.Settle(settle)).settled == len(receipts)

    assert sorted(offsets) == list(range(count))


async def test_a_stream_gets_no_more_at_a_time_than_a_client_takes_in(
    config: ConfigService, broker: Broker, receive_bytes_max: int, body_bytes: int
) -> None:
    async with MessageCenter(broker.address) as center:
        count = await publish_mixed(config, center, body_bytes)
    async with channel_of(broker, receive_bytes_max) as channel, asyncio.timeout(60):
        call = subscriber_pb2_grpc.SubscriberStub(channel).Subscribe()
        hello = subscriber_pb2.SubscriberHello(group=GROUP, instance_id="one")
        await call.write(subscriber_pb2.SubscribeRequest(hello=hello, credit=1_000))
        subscriber = RawSubscriber(call)
        try:
            given = await subscriber.until(count, 50)
        finally:
            await subscriber.vanish()

    assert [one.delivery.queue_offset for one in given] == list(range(count))
    assert max(response.ByteSize() for response in subscriber.told) > body_bytes
