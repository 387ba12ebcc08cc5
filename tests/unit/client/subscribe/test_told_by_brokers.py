"""What a (fake) broker tells of a group, and what becomes of it: refused, missing, not understood, less time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from msgbroker.client import GroupNotFoundError, Message
from msgbroker.v1 import directory_pb2, subscriber_pb2
from tests.support.fake_broker import FakeBroker
from tests.support.fast_center import center_of


async def test_an_unknown_group_ends_run_with_the_reason(broker: FakeBroker) -> None:
    broker.refuse_hello = (grpc.StatusCode.NOT_FOUND, (("msgcenter-reason", "GROUP_NOT_FOUND"),))
    async with center_of(broker) as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None: ...

        with pytest.raises(GroupNotFoundError):
            await center.run()


async def test_register_asks_the_broker_before_subscribing(broker: FakeBroker) -> None:
    async with center_of(broker) as center:

        @center.subscriber(group="SG", topic="TP", event_code="EC", register=True, expression="true")
        async def handle(message: Message) -> None: ...

        await center.start()

    (asked,) = broker.registered
    assert (asked.topic, asked.event_code, asked.group, asked.expression) == ("TP", "EC", "SG", "true")


async def test_a_message_type_without_a_subscription_is_warned_of_once_though_the_client_reconnects(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    missing = [subscriber_pb2.MissingSubscription(topic="TP_TYPO", event_code="EC", reason="TOPIC_NOT_FOUND")]
    broker.attached = subscriber_pb2.Attached(unsettled_max=10, ack_timeout_ms=60_000, missing=missing)
    async with center_of(broker) as center:

        @center.subscriber(group="SG", topic="TP_TYPO", event_code="EC")
        async def handle(message: Message) -> None: ...

        await center.start()
        call = await broker.subscribe_calls.get()
        broker.attached.missing.append(
            subscriber_pb2.MissingSubscription(topic="TP", event_code="*", reason="SUBSCRIPTION_NOT_FOUND")
        )
        call.end()
        again = await broker.subscribe_calls.get()
        again.deliver(b"", event_code="EC_UNHANDLED")
        await again.settled(1)

    assert again.hello is not None
    assert [(handled.topic, handled.event_code) for handled in again.hello.handled] == [("TP_TYPO", "EC")]
    first, second = [r.getMessage() for r in caplog.records if r.levelname == "WARNING" and "gets nothing" in r.message]
    assert "subscription.not_found: group=SG topic=TP_TYPO event_code=EC reason=TOPIC_NOT_FOUND: " in first
    assert "msgcenter subscription create SG TP '*'" in second


async def test_what_the_broker_does_not_understand_is_warned_of_without_advice_to_register_it(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    missing = [subscriber_pb2.MissingSubscription(topic="TP", event_code="EC", reason="NOT_UNDERSTOOD")]
    broker.attached = subscriber_pb2.Attached(unsettled_max=10, ack_timeout_ms=60_000, missing=missing)
    async with center_of(broker) as center:

        @center.subscriber(group="SG", topic="TP", event_code="EC")
        async def handle(message: Message) -> None: ...

        await center.start()

    (warning,) = [r.getMessage() for r in caplog.records if "gets nothing" in r.message]
    assert "this broker's version does not understand" in warning
    assert "subscription create" not in warning


async def test_what_waits_too_long_is_not_begun_by_the_ack_timeout_that_was_told_before_it(
    broker: FakeBroker, put_forward: Callable[[float], None]
) -> None:
    handled: list[bytes] = []
    begun = asyncio.Event()
    gate = asyncio.Event()
    async with center_of(broker) as center:

        @center.subscriber(group="SG", topic="TP", event_code="EC", concurrency=1, credit=10)
        async def handle(message: Message) -> None:
            handled.append(message.body)
            begun.set()
            await gate.wait()

        await center.start()
        call = await broker.subscribe_calls.get()
        call.deliver(b"of 60 s", b"of 60 s, too")
        call.push(subscriber_pb2.SubscribeResponse(attached=subscriber_pb2.Attached(ack_timeout_ms=2_000)))
        call.deliver(b"of 2 s", first=2)
        # Given back at once: what came before it is there as well.
        call.deliver(b"", first=3, event_code="EC_UNHANDLED")
        await begun.wait()
        await call.settled(1)
        put_forward(2)
        gate.set()
        call.deliver(b"later", first=4)
        await call.settled(4)

    assert handled == [b"of 60 s", b"of 60 s, too", b"later"]


class NotUnderstanding(FakeBroker):
    """Refuses every subscriber, and is slow to tell who else there is."""

    async def ListBrokers(
        self, request: directory_pb2.ListBrokersRequest, context: Any
    ) -> directory_pb2.ListBrokersResponse:
        await asyncio.sleep(0.1)
        return await super().ListBrokers(request, context)


async def test_where_the_only_broker_it_knows_does_not_understand_the_group_it_asks_that_one_for_others(
    broker: FakeBroker,
) -> None:
    async with NotUnderstanding() as older:
        told = (("msgcenter-reason", "NOT_UNDERSTOOD"),)
        older.refuse_hello = (grpc.StatusCode.UNAVAILABLE, told)
        older.listed = [older.address, broker.address]
        async with center_of(older) as center:

            @center.subscriber(group="SG", topic="TP", event_code="EC")
            async def handle(message: Message) -> None: ...

            async with asyncio.timeout(10):
                await center.start()

        assert broker.subscribe_calls.qsize() == 1
