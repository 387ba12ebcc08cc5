"""What the client logs: enough in the text itself, and nothing where an error is raised to the caller anyway."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import Any

import grpc
import pytest

import msgbroker.client
from msgbroker.client import (
    BrokerUnavailableError,
    GroupNotFoundError,
    Message,
    MessageCenter,
    NamespaceNotFoundError,
    Reject,
)
from msgbroker.client.connect.outages import OutageLog
from msgbroker.client.testing import InMemoryCenter
from msgbroker.client.values.log_lines import log_line
from msgbroker.contract.errors import MessageCenterError, PublishTimeoutError, UnavailableCause
from msgbroker.v1 import subscriber_pb2
from tests.support.eventually import eventually
from tests.support.fake_broker import FakeBroker


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
    assert texts(caplog) == [
        f"handler.body_not_read: {where} attempt=1: {cause} (the body is not of type dict[str, int])"
    ]


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
        f"handler.rejected: group=SG topic=TP event_code=EC message_id={receipt.message_id} attempt=1: no such order"
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

    refused = "connection refused: nothing listens there; check host and port, and that the broker runs"
    assert sorted(text for text in texts(caplog) if "left_unanswered" not in text) == [
        f"{who} address=127.0.0.1:1 reason=BROKER_UNAVAILABLE: {refused}; trying again"
        for who in ("publisher.broker_not_reached:", "subscriber.broker_not_reached: group=SG")
    ]


def down(address: str = "b:1") -> MessageCenterError:
    return BrokerUnavailableError(f"broker {address}: connection refused", address=address)


def test_an_outage_is_told_of_when_it_begins_and_then_every_30_s_and_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    outages = OutageLog("subscriber", lambda: now[0], group="SG")
    outages.back("b:1")
    for now[0] in (10.0, 11.0, 39.9, 40.0, 41.0, 71.0):
        outages.lost("b:1", down(), has_others=True)
    now[0] = 82.34
    outages.back("c:1")
    outages.back("c:1")
    outages.lost("c:1", down("c:1"))

    where = "group=SG address=b:1 reason=BROKER_UNAVAILABLE"
    assert texts(caplog) == [
        f"subscriber.broker_lost: {where}: connection refused; trying others",
        f"subscriber.broker_missed: {where} seconds=30: connection refused; trying on",
        f"subscriber.broker_missed: {where} seconds=61: connection refused; trying on",
        "subscriber.broker_found: group=SG address=c:1 seconds=72.3",
        "subscriber.broker_lost: group=SG address=c:1 reason=BROKER_UNAVAILABLE: connection refused; trying again",
    ]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 5


def test_a_broker_that_was_never_reached_was_not_lost(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    outages = OutageLog("publisher", lambda: now[0])
    outages.lost("b:1", down())
    now[0] = 2.0
    outages.back("b:1")

    assert texts(caplog) == [
        "publisher.broker_not_reached: address=b:1 reason=BROKER_UNAVAILABLE: connection refused; trying again",
        "publisher.broker_found: address=b:1 seconds=2.0",
    ]


async def test_a_broker_that_goes_and_comes_back_is_told_of_once_each(caplog: pytest.LogCaptureFixture) -> None:
    broker = FakeBroker()
    await broker.start()
    async with MessageCenter(broker.address, backoff_initial_seconds=0.001, backoff_max_seconds=0.01) as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None: ...

        await center.start()
        await center.publish("TP", "EC")
        assert texts(caplog) == []
        await broker.stop()
        publishing = asyncio.ensure_future(center.publish("TP", "EC"))
        await eventually(lambda: len(texts(caplog)) == 2)
        await broker.start(broker.address)
        await publishing
        await eventually(lambda: len(texts(caplog)) == 4)
    await broker.stop()

    told = texts(caplog)
    for component, whose in (("subscriber", "group=SG "), ("publisher", "")):
        lost, back = [text for text in told if text.startswith(component)]
        assert lost.startswith(f"{component}.broker_lost: {whose}address={broker.address} reason=BROKER_UNAVAILABLE: ")
        assert lost.endswith("; trying again")
        assert back.startswith(f"{component}.broker_found: {whose}address={broker.address} seconds=")


async def test_a_planned_move_is_no_outage(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    async with FakeBroker() as other, MessageCenter([broker.address, other.address]) as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None: ...

        await center.start()
        call = await broker.subscribe_calls.get()
        call.push(subscriber_pb2.SubscribeResponse(draining=True))
        await call.half_closed.wait()
        call.end()
        await other.subscribe_calls.get()

    assert texts(caplog) == []


async def test_a_publisher_that_has_nothing_to_send_misses_no_broker(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "msgbroker.client")
    broker = FakeBroker()
    await broker.start()
    async with MessageCenter(broker.address) as center:
        await center.publish("TP", "EC")
        await broker.stop()
        await eventually(lambda: any("publisher.disconnected" in text for text in texts(caplog, logging.INFO)))

    assert texts(caplog) == []


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
        "publisher.refused: reason=GROUP_NOT_FOUND: it was deleted",
        "subscriber.ended: group=SG reason=GROUP_NOT_FOUND: the group is not served any more: it was deleted",
    ]


def test_a_cause_that_does_not_name_the_address_is_shown_whole(caplog: pytest.LogCaptureFixture) -> None:
    OutageLog("publisher").lost("b:1", MessageCenterError("the broker ended the stream"))

    (text,) = texts(caplog)
    assert text.endswith(": the broker ended the stream; trying again")


@pytest.mark.slow
async def test_who_waits_in_vain_is_told_why() -> None:
    async with MessageCenter("127.0.0.1:1", publish_timeout_seconds=0.3, drain_timeout_seconds=0) as center:
        for timeout_seconds in (None, 0.2):
            with pytest.raises(PublishTimeoutError) as raised:
                await center.publish("TP", "EC", timeout_seconds=timeout_seconds)

            assert "it was not sent (broker 127.0.0.1:1: connection refused: nothing listens there" in str(raised.value)
            assert raised.value.cause is UnavailableCause.REFUSED


# --- their form -------------------------------------------------------------------------------------------------------

CLIENT = Path(msgbroker.client.__file__).parent


def test_what_a_line_is_about_is_in_its_text_and_in_its_record(caplog: pytest.LogCaptureFixture) -> None:
    log_line(logging.WARNING, "handler.rested", group="SG", count=2)
    log_line(logging.WARNING, "handler.rested", "100 % of them", group="SG")
    log_line(logging.WARNING, "handler.rested")
    log_line(logging.WARNING, "handler.rested", "a while")

    assert caplog.messages == [
        "handler.rested: group=SG count=2",
        "handler.rested: group=SG: 100 % of them",
        "handler.rested",
        "handler.rested: a while",
    ]
    assert (vars(caplog.records[0])["group"], vars(caplog.records[0])["count"]) == ("SG", 2)


async def test_a_handler_goes_on_though_the_records_of_the_application_have_attributes_of_the_same_names(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_record = logging.getLogRecordFactory()

    def make_own_record(*arguments: Any, **more: Any) -> logging.LogRecord:
        record = make_record(*arguments, **more)
        record.topic = "of the application"
        return record

    # What `logging.setLogRecordFactory` sets.
    monkeypatch.setattr(logging, "_logRecordFactory", make_own_record)
    async with InMemoryCenter() as center:
        attempts: list[int] = []

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            attempts.append(message.attempt)
            if message.attempt == 1:
                raise ValueError("no luck")

        await center.start()
        receipt = await center.publish("TP", "EC")
        await center.settle_all()

    assert attempts == [1, 2]
    assert texts(caplog) == [
        f"handler.failed: group=SG topic=TP event_code=EC message_id={receipt.message_id} attempt=1"
    ]
    (record,) = [record for record in caplog.records if record.name == "msgbroker.client"]
    assert vars(record)["topic"] == "of the application"
    assert record.exc_info is not None


def test_all_lines_of_the_client_have_the_one_form() -> None:
    sources = {path.name: path.read_text() for path in CLIENT.rglob("*.py")}
    docs = (CLIENT.parents[1] / "docs" / "client.md").read_text()
    documented = re.findall(r"^(?:.*`)?([a-z]+\.[a-z_]+): (?:[a-z_]+=|…)", docs, re.MULTILINE)
    words = {word for event in documented for word in event.split(".")}

    assert [name for name, source in sources.items() if "getLogger" in source] == ["log_lines.py"]
    assert words
    assert [word for word in sorted(words) if not any(word in source for source in sources.values())] == []
