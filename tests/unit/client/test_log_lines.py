"""What the client logs: enough in the text itself, and nothing where an error is raised to the caller anyway."""

from __future__ import annotations

import asyncio
import logging

import grpc
import pytest

from msgbroker.client import (
    BrokerUnavailableError,
    GroupNotFoundError,
    Message,
    MessageCenter,
    NamespaceNotFoundError,
    Reject,
)
from msgbroker.client.outages import OutageLog
from msgbroker.client.testing import InMemoryCenter
from msgbroker.contract.errors import MessageCenterError
from tests.eventually import eventually
from tests.unit.client.fake_broker import FakeBroker


def texts(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    """What the client said; others, grpc for instance, may have something to say of what other tests have left."""
    records = [record for record in caplog.records if record.name.startswith("msgbroker.")]
    return [record.getMessage() for record in records if record.levelno >= level]


async def test_a_failed_handler_is_named_in_the_text(caplog: pytest.LogCaptureFixture) -> None:
    async with InMemoryCenter() as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            if message.attempt == 1:
                raise ValueError("no luck")

        await center.start()
        receipt = await center.publish("TP", "EC")
        await center.settle_all()

    assert texts(caplog) == [
        f"handler.failed: group=SG topic=TP event_code=EC message_id={receipt.message_id} attempt=1"
    ]


async def test_a_body_that_cannot_be_read_is_a_warning_without_its_values(caplog: pytest.LogCaptureFixture) -> None:
    async with InMemoryCenter() as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(counts: dict[str, int]) -> None: ...

        await center.start()
        receipt = await center.publish("TP", "EC", {"apples": "a secret"})
        await center.settle_all()

    cause = "apples: Input should be a valid integer, unable to parse string as an integer"
    where = f"group=SG topic=TP event_code=EC message_id={receipt.message_id}"
    assert texts(caplog) == [f"handler.unreadable: {where}: the body is not of type dict[str, int]: {cause}"]


@pytest.mark.parametrize("is_raised", [True, False])
async def test_a_rejection_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture, is_raised: bool) -> None:
    caplog.set_level(logging.INFO, "msgbroker.client")
    async with InMemoryCenter() as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> Reject:
            rejection = Reject("no such order")
            if is_raised:
                raise rejection
            return rejection

        await center.start()
        receipt = await center.publish("TP", "EC")
        await center.settle_all()

    assert texts(caplog, logging.INFO) == [
        f"handler.rejected: group=SG topic=TP event_code=EC message_id={receipt.message_id}: no such order"
    ]


async def test_without_a_broker_starting_and_publishing_say_so_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "msgbroker.client")
    async with MessageCenter(
        "127.0.0.1:1", connect_timeout_seconds=0.05, backoff_initial_seconds=0.001, drain_timeout_seconds=0
    ) as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None: ...

        starting = asyncio.ensure_future(center.start())
        center.publish_one_way("TP", "EC")
        await eventually(lambda: len([text for text in texts(caplog, logging.INFO) if "disconnected" in text]) > 5)
        starting.cancel()

    assert texts(caplog)[0].startswith("cannot reach 127.0.0.1:1 (connection refused: nothing listens there")
    assert len([text for text in texts(caplog) if "cannot reach" in text]) == 1


def test_an_outage_is_told_of_again_after_30_s(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    outages = OutageLog(lambda: now[0])
    for now[0] in (0.0, 1.0, 29.9, 30.0, 31.0):
        outages.unreachable("b:1", BrokerUnavailableError(f"broker b:1: down at {now[0]:g}"))

    assert texts(caplog) == [f"cannot reach b:1 (down at {at}), trying again" for at in (0, 30)]


async def test_a_refusal_that_is_raised_is_not_logged_as_well(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.refuse_hello = (grpc.StatusCode.NOT_FOUND, (("msgcenter-reason", "GROUP_NOT_FOUND"),))
    async with MessageCenter(broker.address) as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None: ...

        with pytest.raises(GroupNotFoundError):
            await center.start()
        broker.refuse_hello = (grpc.StatusCode.NOT_FOUND, (("msgcenter-reason", "NAMESPACE_NOT_FOUND"),))
        with pytest.raises(NamespaceNotFoundError):
            await center.publish("TP", "EC")

    assert texts(caplog) == []


async def test_a_refusal_that_nobody_is_told_of_is_logged(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    async with MessageCenter(broker.address, backoff_initial_seconds=0.001) as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None: ...

        await center.start()
        call = await broker.subscribe_calls.get()
        told = (("msgcenter-reason", "GROUP_NOT_FOUND"), ("msgcenter-message", "it was deleted"))
        broker.refuse_hello = (grpc.StatusCode.NOT_FOUND, told)
        call.end()
        center.publish_one_way("TP", "EC")
        await center.flush()
        await eventually(lambda: len(texts(caplog, logging.ERROR)) == 2)

    assert sorted(texts(caplog, logging.ERROR)) == [
        "publisher.refused: it was deleted",
        "subscriber.refused: group SG is not served any more: it was deleted",
    ]


def test_a_cause_that_does_not_name_the_address_is_shown_whole(caplog: pytest.LogCaptureFixture) -> None:
    OutageLog().unreachable("b:1", MessageCenterError("the broker ended the stream"))

    assert texts(caplog) == ["cannot reach b:1 (the broker ended the stream), trying again"]
