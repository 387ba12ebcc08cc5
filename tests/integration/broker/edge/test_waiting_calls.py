"""Unary calls that send nothing, and pulls that wait for messages: others are answered all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from confdb.services import ConfigService
from msgbroker.contract import limits
from msgbroker.server.app import Broker
from msgbroker.server.edge.calls import unread
from msgbroker.v1 import message_pb2, publisher_pb2, publisher_pb2_grpc, subscriber_pb2, subscriber_pb2_grpc
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import GROUP, PAID, TOPIC, register_group
from tests.support.eventually import eventually

SAID = message_pb2.Message(topic=TOPIC, event_code=PAID, body=b"x")
OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)
PUBLISH = "/msgbroker.v1.Publisher/Publish"
CHECK = "/grpc.health.v1.Health/Check"


class Calls:
    """The unary calls of a client with a connection of its own."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._health: Any = health_pb2_grpc.HealthStub(channel)
        self._publisher: Any = publisher_pb2_grpc.PublisherStub(channel)
        self._subscriber: Any = subscriber_pb2_grpc.SubscriberStub(channel)

    async def check(self) -> None:
        """Ask for health."""
        answer = await self._health.Check(health_pb2.HealthCheckRequest(service=""))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING

    async def publish(self) -> None:
        """Publish a message."""
        answer = await self._publisher.Publish(publisher_pb2.PublishRequest(messages=[SAID]))
        assert len(answer.queue_ids) == 1

    def pull(self, instance_id: str = "one") -> Any:
        """Pull a message, however long it takes."""
        return self._subscriber.Pull(
            subscriber_pb2.PullRequest(group=GROUP, instance_id=instance_id, messages_max=1, wait_ms=30_000)
        )

    async def settle(self, receipt: bytes) -> int:
        """Acknowledge what was pulled; return how much was settled."""
        request = subscriber_pb2.SettleRequest(
            group=GROUP, instance_id="one", receipts=[receipt], verdict=subscriber_pb2.VERDICT_ACK
        )
        answer = await self._subscriber.Settle(request)
        return int(answer.settled)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a broker wait for requests for ever, as long as they are in nobody's way."""
    monkeypatch.setattr(limits, "REQUEST_SECONDS_MAX", 3_600.0)
    monkeypatch.setattr(unread, "_AMONG_OTHERS_SECONDS", 0.0)


async def say_nothing(channel: grpc.aio.Channel, method: str, count: int, until: Callable[[int], bool]) -> list[Any]:
    """Begin so many calls without their messages; return them once as many are refused as *until* says."""
    # Called as streams, so that they can be begun without a message.
    silent: list[Any] = [channel.stream_unary(method)() for _ in range(count)]
    await eventually(lambda: until(sum(call.done() for call in silent)), what="all of them there, or refused")
    return silent


@pytest.mark.usefixtures("patient")
async def test_callers_that_send_nothing_do_not_keep_those_of_other_connections_from_being_answered(
    trade: ConfigService, start_broker: StartBroker
) -> None:
    broker = await start_broker(calls_max=100)
    async with (
        grpc.aio.insecure_channel(broker.address, OWN_CONNECTION) as theirs,
        grpc.aio.insecure_channel(broker.address, OWN_CONNECTION) as ours,
    ):
        # They have all turns at being read and wait for more, and all places.
        silent = await say_nothing(theirs, PUBLISH, 150, lambda refused: refused == 50)
        for _ in range(3):
            await Calls(ours).publish()

        given_up = [call for call in silent if call.done()]
        assert len(given_up) < 60, "no more than need be"
        assert {await reason_of(call) for call in given_up} == {"TOO_MANY_CALLS", "UNFINISHED"}


@pytest.mark.usefixtures("patient")
async def test_a_supervisor_is_answered_whatever_callers_do(trade: ConfigService, start_broker: StartBroker) -> None:
    broker = await start_broker(calls_max=10)
    async with (
        grpc.aio.insecure_channel(broker.address, OWN_CONNECTION) as theirs,
        grpc.aio.insecure_channel(broker.address, OWN_CONNECTION) as ours,
    ):
        await say_nothing(theirs, PUBLISH, 20, lambda refused: refused == 10)
        # Even through the same connection: it is another gate.
        await Calls(theirs).check()
        await say_nothing(theirs, CHECK, 150, lambda refused: refused == 50)
        await Calls(ours).check()


async def test_pulls_that_wait_do_not_keep_verdicts_out_nor_what_else_is_called(
    trade: ConfigService, start_broker: StartBroker
) -> None:
    await register_group(trade)
    broker = await start_broker(calls_max=1, pulls_max=3)
    async with grpc.aio.insecure_channel(broker.address) as channel:
        calls = Calls(channel)
        first = asyncio.ensure_future(calls.pull())
        await has_begun(broker, 1)
        await calls.publish()
        (pulled,) = (await first).messages
        waiting = []
        for number in range(3):
            waiting.append(asyncio.ensure_future(calls.pull(f"i{number}")))
            await has_begun(broker, 1 + number)

        await calls.check()
        assert await calls.settle(pulled.receipt) == 1
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await calls.pull("one-more")
        assert await reason_of(raised.value) == "TOO_MANY_CALLS"
        assert "answers 3 pulls" in str(raised.value.details())
        for pull in waiting:
            pull.cancel()
        await has_begun(broker, 0)


async def has_begun(broker: Broker, count: int) -> None:
    """Wait until so many pulls wait, and nothing is on its way to wait."""
    await eventually(lambda: broker.grpc_door.pull.calls.count == count, what=f"{count} pulls")


async def reason_of(call: Any) -> str:
    """Return the reason of a refusal, raised or not."""
    metadata = call.trailing_metadata()
    return str(dict(await metadata if asyncio.iscoroutine(metadata) else metadata)["msgcenter-reason"])
