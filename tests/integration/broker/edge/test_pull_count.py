"""A Pull returns no more messages than it asks for."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from confdb.services import ConfigService
from msgbroker.client import MessageCenter, OutgoingMessage
from msgbroker.server.app import Broker
from msgbroker.v1 import subscriber_pb2, subscriber_pb2_grpc
from tests.support.collecting import GROUP, PAID, TOPIC, register_group
from tests.support.eventually import eventually


async def test_a_pull_gets_no_more_than_it_asks_for_when_others_are_settled_meanwhile(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade)
    async with grpc.aio.insecure_channel(broker.address) as channel:
        stub: Any = subscriber_pb2_grpc.SubscriberStub(channel)

        async def pull(count: int, wait_ms: int) -> list[Any]:
            request = subscriber_pb2.PullRequest(group=GROUP, instance_id="one", messages_max=count, wait_ms=wait_ms)
            return list((await stub.Pull(request)).messages)

        await pull(1, 0)
        await eventually(lambda: [s for g in broker.hub.groups.values() for s in g.lanes.values()])
        held: list[Any] = []
        await center.publish_many([OutgoingMessage(TOPIC, PAID, str(n)) for n in range(100)])
        while len(held) < 100:
            held += await pull(100, 1_000)
        # One thread waits for one more message, another says what became of those it has.
        waiting = asyncio.ensure_future(pull(1, 10_000))
        await asyncio.sleep(0.3)
        settled = await stub.Settle(
            subscriber_pb2.SettleRequest(
                group=GROUP,
                instance_id="one",
                receipts=[message.receipt for message in held],
                verdict=subscriber_pb2.VERDICT_ACK,
            )
        )
        assert settled.settled == 100
        await center.publish_many([OutgoingMessage(TOPIC, PAID, f"new {n}") for n in range(100)])
        pulled = await waiting

    assert len(pulled) == 1
