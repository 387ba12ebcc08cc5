"""Conformance: whatever text an error or a message has, the message is settled, or refused by name."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from msgbroker.client import (
    InvalidExpressionError,
    InvalidHeadersError,
    InvalidKeyError,
    InvalidRequestError,
    Message,
    MessageCenterError,
    OutgoingMessage,
    Receipt,
    Reject,
    Release,
    RetryAfter,
)
from tests.contract.harness import Harness, Recorder, prepare


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


class OddVerdict(Reject):
    """A class of the user's own that forgets about ours."""

    def __init__(self) -> None:
        Exception.__init__(self, "odd")


@pytest.mark.parametrize(
    "raised, reason, text",
    [
        (ValueError("\ud800 \udfff"), "ATTEMPTS_EXHAUSTED", r"ValueError: \ud800 \udfff"),
        (ValueError("\ud800" * 1_000), "ATTEMPTS_EXHAUSTED", ("ValueError: " + r"\ud800" * 1_000)[:1_000]),
        (ValueError("杭州" * 1_000), "ATTEMPTS_EXHAUSTED", ("ValueError: " + "杭州" * 1_000)[:1_000]),
        (ValueError("a\0b"), "ATTEMPTS_EXHAUSTED", "ValueError: a\N{REPLACEMENT CHARACTER}b"),
        (UnreadableError(), "ATTEMPTS_EXHAUSTED", "UnreadableError: (its text cannot be read: RuntimeError)"),
        (Reject("never: \ud800"), "REJECTED", r"never: \ud800"),
        (Reject(7), "REJECTED", "7"),  # type: ignore[arg-type]
        (RetryAfter(0, "later: \ud800"), "ATTEMPTS_EXHAUSTED", r"later: \ud800"),
        (OddVerdict(), "ATTEMPTS_EXHAUSTED", "OddVerdict: odd"),
    ],
    ids=["surrogates", "many", "long", "NUL", "unreadable", "reject", "not a text", "retry after", "odd verdict"],
)
async def test_an_error_of_any_text_settles_its_message(
    harness: Harness, raised: Exception, reason: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    # pytest-xdist cannot carry such texts either.
    caplog.set_level(logging.CRITICAL, "msgbroker.client")
    await prepare(harness, "SG", retry_schedule_seconds=())
    recorder = Recorder()
    async with harness.center() as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            recorder.add(message)
            if message.body == b"bad":
                raise raised

        await center.start()
        await center.publish("TP", "EC", b"bad")
        letters = await harness.dead_letters("SG", 1)
        await center.publish("TP", "EC", b"good")
        await harness.received(recorder, 2)

    assert [(letter.body, letter.reason, letter.last_error) for letter in letters] == [(b"bad", reason, text)]
    assert recorder.bodies == [b"bad", b"good"]


async def test_a_release_of_any_text_gives_its_message_back(harness: Harness) -> None:
    await prepare(harness, "SG")
    recorder = Recorder()
    async with harness.center() as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            recorder.add(message)
            if len(recorder.messages) == 1:
                raise Release(0, "not now: \ud800")

        await center.start()
        await center.publish("TP", "EC", b"1")
        await harness.received(recorder, 2)

    assert [message.attempt for message in recorder.messages] == [1, 1]


@pytest.mark.parametrize(
    "fields, error",
    [
        ({"key": "\ud800"}, InvalidKeyError),
        ({"ordering_key": "\ud800"}, InvalidKeyError),
        ({"headers": {"\ud800": "v"}}, InvalidHeadersError),
        ({"headers": {"h": "\ud800"}}, InvalidHeadersError),
        ({"body": "\ud800"}, InvalidRequestError),
        ({"body": {"\ud800": 1}}, InvalidRequestError),
    ],
)
async def test_text_that_is_not_utf_8_is_refused_alone_and_says_why(
    harness: Harness, fields: dict[str, Any], error: type[MessageCenterError]
) -> None:
    await harness.register_topic("TP", "EC")
    async with harness.center() as center:
        before, refused, after = await center.publish_many(
            [OutgoingMessage("TP", "EC"), OutgoingMessage("TP", "EC", **fields), OutgoingMessage("TP", "EC")]
        )

    assert isinstance(before, Receipt)
    assert isinstance(after, Receipt)
    assert isinstance(refused, error)
    assert "surrogate" in str(refused)


async def test_an_expression_that_is_not_utf_8_is_refused(harness: Harness) -> None:
    async with harness.center() as center:
        with pytest.raises(InvalidExpressionError, match="UTF-8"):
            await center.register("TP", "EC", group="SG", expression="headers.a == '\ud800'")
