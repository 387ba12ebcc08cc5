"""Two processes under one instance id do not fight for ever, however they come by their messages."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from confdb.services import ConfigService
from msgbroker.client import InstanceReplacedError, Message, MessageCenter
from msgbroker.server.app import Broker
from msgbroker.v1 import subscriber_pb2, subscriber_pb2_grpc
from msgdb.store import MessageStore
from tests.support.collecting import GROUP, PAID, TOPIC, dead_letters, register_group
from tests.support.eventually import eventually


async def test_a_stream_and_a_puller_under_one_id_do_not_make_dead_letters_of_what_is_handled(
    trade: ConfigService, broker: Broker, center: MessageCenter, message_store: MessageStore
) -> None:
    await register_group(trade, retry_schedule_seconds=[0.2, 0.2], attempts_max=3)
    finished: list[int] = []
    attempts: list[int] = []

    async def handle(message: Message) -> None:
        attempts.append(message.attempt)
        await asyncio.sleep(1.5)
        finished.append(message.attempt)

    async with MessageCenter(broker.address, instance_id="one", drain_timeout_seconds=0.5) as subscribing:
        subscribing.subscriber(group=GROUP, topic=TOPIC)(handle)
        running = asyncio.ensure_future(subscribing.run())
        await eventually(lambda: broker.grpc_door.subscriber._instances)
        await center.publish(TOPIC, PAID, b"x")
        await eventually(lambda: attempts)
        evictions = 0
        async with grpc.aio.insecure_channel(broker.address) as channel:
            stub: Any = subscriber_pb2_grpc.SubscriberStub(channel)
            for _ in range(8):
                await asyncio.sleep(0.8)
                before = set(broker.grpc_door.subscriber._instances)
                try:
                    # It settles nothing: it is somebody who looks every now and then whether there is anything.
                    await stub.Pull(subscriber_pb2.PullRequest(group=GROUP, instance_id="one"))
                except grpc.aio.AioRpcError:
                    # Refused: a good answer, too.
                    break
                await asyncio.sleep(0.05)
                evictions += bool(before - broker.grpc_door.subscriber._instances)
        has_heard = running.done() and isinstance(running.exception(), InstanceReplacedError)
        await broker.checkpointer.flush_once()
        letters = await dead_letters(trade, message_store)
        running.cancel()
        await asyncio.wait([running])

    assert has_heard or evictions <= 1, f"{evictions} evictions, attempts {attempts}, finished {finished}, {letters}"
