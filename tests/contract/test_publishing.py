"""Conformance: what a publisher may rely on."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from msgbroker.client import (
    BodyTooLargeError,
    BodyTypeError,
    CenterClosedError,
    EventCodeNotFoundError,
    InvalidHeadersError,
    InvalidKeyError,
    InvalidNameError,
    InvalidRequestError,
    InvalidSettingError,
    MessageCenterError,
    OutgoingMessage,
    Receipt,
    StressRefusedError,
    TopicClosedError,
    TopicNotFoundError,
)
from tests.contract.harness import BlockingHarness, Harness


async def test_offsets_start_at_0_and_have_no_gaps(harness: Harness) -> None:
    await harness.register_topic("TP", "EC")
    async with harness.center() as center:
        receipts = [await center.publish("TP", "EC", str(n)) for n in range(5)]

    assert [receipt.queue_offset for receipt in receipts] == list(range(5))
    assert len({receipt.queue_id for receipt in receipts}) == 1


async def test_a_receipt_has_a_time_ordered_id_and_a_time(harness: Harness) -> None:
    await harness.register_topic("TP", "EC")
    async with harness.center() as center:
        first = await center.publish("TP", "EC")
        second = await center.publish("TP", "EC")

    assert first.message_id.version == second.message_id.version == 7
    assert first.message_id != second.message_id
    assert first.stored_at <= second.stored_at
    assert first.stored_at.tzinfo is not None
    assert not first.duplicate


async def test_messages_of_one_publisher_are_stored_in_the_order_of_the_calls(harness: Harness) -> None:
    await harness.register_topic("TP", "EC")
    async with harness.center() as center:
        futures = [center.publish_soon("TP", "EC", str(n)) for n in range(50)]
        answers = await center.publish_many(OutgoingMessage("TP", "EC", str(n)) for n in range(50))
        offsets = [(await future).queue_offset for future in futures]

    assert offsets == list(range(50))
    assert [answer.queue_offset for answer in answers if isinstance(answer, Receipt)] == list(range(50, 100))


@pytest.mark.parametrize(
    "bad, error, reason",
    [
        (OutgoingMessage("TP_UNKNOWN", "EC"), TopicNotFoundError, "TOPIC_NOT_FOUND"),
        (OutgoingMessage("TP", "EC_UNKNOWN"), EventCodeNotFoundError, "EVENT_CODE_NOT_FOUND"),
        (OutgoingMessage("TP", "EC", bytes(8_193)), BodyTooLargeError, "BODY_TOO_LARGE"),
        (OutgoingMessage("T" * 129, "EC"), InvalidNameError, "INVALID_NAME"),
        (OutgoingMessage("TP", "E" * 65), InvalidNameError, "INVALID_NAME"),
        (OutgoingMessage("TP", "EC", key="k" * 257), InvalidKeyError, "INVALID_KEY"),
        (OutgoingMessage("TP", "EC", headers={"h": "\0"}), InvalidHeadersError, "INVALID_HEADERS"),
        (OutgoingMessage("TP", "EC", headers={"h": "v" * 4_096}), InvalidHeadersError, "INVALID_HEADERS"),
        (OutgoingMessage("TP", "EC", headers={str(n): "" for n in range(65)}), InvalidHeadersError, "INVALID_HEADERS"),
    ],
)
async def test_a_bad_message_is_refused_alone_and_says_why(
    harness: Harness, bad: OutgoingMessage, error: type[MessageCenterError], reason: str
) -> None:
    await harness.register_topic("TP", "EC")
    async with harness.center() as center:
        before, refused, after = await center.publish_many(
            [OutgoingMessage("TP", "EC", b"before"), bad, OutgoingMessage("TP", "EC", b"after")]
        )

    assert isinstance(before, Receipt)
    assert isinstance(after, Receipt)
    assert after.queue_offset == before.queue_offset + 1
    assert type(refused) is error
    assert refused.reason == reason


async def test_a_refusal_names_the_thing_and_the_limit(harness: Harness) -> None:
    await harness.register_topic("TP", "EC")
    async with harness.center() as center:
        with pytest.raises(BodyTooLargeError, match=r"8193 bytes.*'TP'.*8192") as raised:
            await center.publish("TP", "EC", bytes(8_193))

    assert raised.value.body_bytes_max == 8192


async def test_a_topic_may_be_given_a_larger_body(harness: Harness) -> None:
    await harness.register_topic("TP", "EC", body_bytes_max=1_000_000)
    async with harness.center() as center:
        assert (await center.publish("TP", "EC", bytes(1_000_000))).queue_offset == 0
        with pytest.raises(BodyTooLargeError):
            await center.publish("TP", "EC", bytes(1_000_001))


async def test_a_closed_topic_takes_nothing(harness: Harness) -> None:
    await harness.register_topic("TP", "EC")
    await harness.update_topic("TP", is_closed=True)
    async with harness.center() as center:
        with pytest.raises(TopicClosedError, match="'TP'"):
            await center.publish("TP", "EC")


async def test_an_open_topic_takes_new_event_codes(harness: Harness) -> None:
    await harness.register_topic("TP", is_open=True)
    async with harness.center() as center:
        assert (await center.publish("TP", "EC_NEW")).queue_offset == 0


async def test_the_kill_switch_refuses_stress_messages_only(harness: Harness) -> None:
    await harness.register_topic("TP", "EC")
    await harness.update_topic("TP", stress_refused=True)
    async with harness.center() as center:
        with pytest.raises(StressRefusedError):
            await center.publish("TP", "EC", headers={"x-stress-test": "true"})
        assert (await center.publish("TP", "EC")).queue_offset == 0


_NO_TIMEOUTS: list[Any] = [0, -1, math.nan, "5", True, b"5"]


@pytest.mark.parametrize("seconds", _NO_TIMEOUTS, ids=repr)
async def test_the_time_for_a_single_call_has_the_bounds_of_the_settings(harness: Harness, seconds: Any) -> None:
    await harness.register_topic("TP", "EC")
    async with harness.center() as center:
        for call in (center.publish, center.register):
            with pytest.raises(InvalidSettingError, match=r"^timeout_seconds ") as refused:
                await call("TP", "EC", timeout_seconds=seconds)
            assert refused.value.name == "timeout_seconds"
        with pytest.raises(InvalidSettingError, match=r"^timeout_seconds is None"):
            await center.register("TP", "EC", timeout_seconds=None)  # type: ignore[arg-type]
        receipt = await center.publish("TP", "EC", timeout_seconds=math.inf)
        await center.publish("TP", "EC", timeout_seconds=20)

    assert receipt.queue_offset == 0


A_SET: Any = {1, 2}
WRONG: list[tuple[Any, type[MessageCenterError], str]] = [
    (
        OutgoingMessage("TP", "EC", A_SET),
        BodyTypeError,
        "a body is bytes, str, dict, list, a dataclass or a pydantic model, not set",
    ),
    (OutgoingMessage("TP", "EC", {"a": 1j}), BodyTypeError, "cannot be written as JSON: complex has no form there"),
    (
        ("TP", "EC"),
        InvalidSettingError,
        "messages[1] is of type tuple; OutgoingMessage(topic, event_code, body) is wan",
    ),
]


def check_answers(answers: list[Receipt | MessageCenterError], error: type[MessageCenterError], wording: str) -> None:
    first, wrong, last = answers
    assert isinstance(first, Receipt)
    assert isinstance(last, Receipt)
    assert (first.queue_offset, last.queue_offset) == (0, 1)
    assert type(wrong) is error
    assert wording in wrong.message


@pytest.mark.parametrize("bad, error, wording", WRONG, ids=["a set", "a number in a dict", "a tuple"])
async def test_what_is_no_message_is_answered_alone(
    harness: Harness, bad: Any, error: type[MessageCenterError], wording: str
) -> None:
    await harness.register_topic("TP", "EC")
    async with harness.center() as center:
        answers = await center.publish_many([OutgoingMessage("TP", "EC"), bad, OutgoingMessage("TP", "EC")])

    check_answers(answers, error, wording)


@pytest.mark.parametrize("bad, error, wording", WRONG, ids=["a set", "a number in a dict", "a tuple"])
async def test_blocking_code_has_it_answered_alone_as_well(
    blocking_harness: BlockingHarness, bad: Any, error: type[MessageCenterError], wording: str
) -> None:
    await blocking_harness.register_topic("TP", "EC")
    center = blocking_harness.blocking_center()
    try:
        messages = [OutgoingMessage("TP", "EC"), bad, OutgoingMessage("TP", "EC")]
        answers = await asyncio.to_thread(center.publish_many, messages)
    finally:
        await asyncio.to_thread(center.close)

    check_answers(answers, error, wording)


def check_body_type(raised: Exception) -> None:
    assert isinstance(raised, InvalidRequestError)
    assert isinstance(raised, TypeError)
    assert (raised.reason, raised.facts, raised.retryable) == ("INVALID_FIELD", {"field": "body"}, False)


async def test_a_body_of_a_type_that_cannot_be_sent_is_refused_and_a_type_error(harness: Harness) -> None:
    await harness.register_topic("TP", "EC")
    body: Any = 3.5
    async with harness.center() as center:
        for publish in (center.publish, center.publish_soon, center.publish_one_way):
            with pytest.raises(BodyTypeError, match="not float") as raised:
                await publish("TP", "EC", body)  # type: ignore[misc]
            check_body_type(raised.value)


def some_and_then_no_more() -> Iterator[OutgoingMessage]:
    yield OutgoingMessage("TP", "EC", b"1")
    yield OutgoingMessage("TP", "EC_UNKNOWN", b"2")
    yield OutgoingMessage("TP", "EC", b"3")
    raise LookupError("the file ends in the middle")


def check_notes(raised: Exception) -> None:
    told, failed = raised.__notes__
    assert told == "messages that publish_many was given before that: 3; stored: 2"
    assert failed.startswith("1 failed, the first of them with EVENT_CODE_NOT_FOUND: ")


async def test_what_ends_the_messages_in_the_middle_is_raised_once_those_before_are_answered(harness: Harness) -> None:
    await harness.register_topic("TP", "EC")
    async with harness.center() as center:
        with pytest.raises(LookupError) as raised:
            await center.publish_many(some_and_then_no_more())
        assert (await center.publish("TP", "EC")).queue_offset == 2
    check_notes(raised.value)


async def test_blocking_code_hears_likewise_what_became_of_those_before(blocking_harness: BlockingHarness) -> None:
    await blocking_harness.register_topic("TP", "EC")
    center = blocking_harness.blocking_center()
    try:
        with pytest.raises(LookupError) as raised:
            await asyncio.to_thread(center.publish_many, some_and_then_no_more())
    finally:
        await asyncio.to_thread(center.close)
    check_notes(raised.value)


async def test_a_center_that_is_closed_does_nothing_any_more(harness: Harness) -> None:
    center = harness.center()
    await center.close()

    calls: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        lambda: center.publish("TP", "EC"),
        lambda: center.publish_many([OutgoingMessage("TP", "EC")]),
        lambda: center.register("TP", "EC"),
        center.ready,
        center.start,
        center.run,
    ]
    for call in calls:
        with pytest.raises(CenterClosedError):
            await call()
    await center.flush()
