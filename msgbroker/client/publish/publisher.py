"""What a MessageCenter needs of whoever takes its messages: the stream to a broker, or the in-memory store of tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from msgbroker.client.values.config import check_call_timeout
from msgbroker.client.values.message import OutgoingMessage, Receipt
from msgbroker.contract.errors import InvalidSettingError, MessageCenterError, PublishTimeoutError

ReceiptFuture = asyncio.Future[Receipt]


class PublishingBuffer(Protocol):
    """Takes encoded messages, in the order of the calls: whoever waits for room is overtaken by nobody."""

    @property
    def unanswered_count(self) -> int:
        """How many messages wait for their answer, or for room."""

    @property
    def trouble(self) -> MessageCenterError | None:
        """Why nothing is stored at the moment, as far as it is known."""

    def offer(self, encoded: bytes) -> ReceiptFuture:
        """Take one message and return the future of its receipt; raise ClientBufferFullError if there is no room."""

    def offer_in_turn(self, encoded: bytes, within_seconds: float | None = None) -> ReceiptFuture:
        """Take one message as soon as there is room and return the future of its receipt, whose time begins now.

        *within_seconds*: how long it may take, where that is not what publishing may take.
        """

    async def taken(self, answer: ReceiptFuture) -> None:
        """Wait until the message of that answer waits for room no longer."""

    def is_sent(self, answer: ReceiptFuture) -> bool:
        """Return whether the unanswered message of that answer has been sent: it may be stored then."""

    def offer_one_way(self, encoded: bytes) -> bool:
        """Take one message that nobody waits for; return False if there is no room."""

    async def room(self) -> None:
        """Wait until there is room, in the order of the callers. Whoever it returns to offers at once."""

    async def flush(self) -> None:
        """Wait until everything was answered, or given up."""


class Publisher(Protocol):
    """Where messages go in, and what takes them from there to be stored."""

    @property
    def buffer(self) -> PublishingBuffer:
        """The buffer that published messages go into."""

    async def close(self, reason: MessageCenterError) -> None:
        """Stop; whatever is unanswered fails with *reason*."""


async def publish_within(buffer: PublishingBuffer, encoded: bytes, within_seconds: float, address: str) -> Receipt:
    """Publish in so much time, waiting for room included; raise PublishTimeoutError, which names *address*."""
    check_call_timeout(within_seconds)
    # It is given up here; by the buffer a moment later.
    answer = buffer.offer_in_turn(encoded, within_seconds + 1.0)
    try:
        async with asyncio.timeout(within_seconds):
            return await answer
    except TimeoutError as error:
        if answer.done() and not answer.cancelled():
            # It came in the same moment.
            return answer.result()
        raise PublishTimeoutError(
            within_seconds, may_be_stored=buffer.is_sent(answer), address=address, trouble=buffer.trouble
        ) from error


def encode_outgoing(encode: Callable[..., bytes], message: object, index: int) -> bytes:
    """Return what `publish_many` was given at *index* encoded, or raise an InvalidRequestError."""
    if not isinstance(message, OutgoingMessage):
        raise InvalidSettingError(
            f"messages[{index}]",
            f"is of type {type(message).__name__}; OutgoingMessage(topic, event_code, body) is wanted",
        )
    return encode(
        message.topic,
        message.event_code,
        message.body,
        headers=message.headers,
        key=message.key,
        ordering_key=message.ordering_key,
    )


async def outcome_of(answer: ReceiptFuture | MessageCenterError) -> Receipt | MessageCenterError:
    """Return the receipt or the error that a message of `publish_many` is answered with."""
    if isinstance(answer, MessageCenterError):
        return answer
    try:
        return await answer
    except MessageCenterError as error:
        return error


def note_answers(failure: Exception, answers: Sequence[Receipt | MessageCenterError]) -> None:
    """Note with what broke `publish_many` off what became of the messages before: nobody else hears of it."""
    errors = [answer for answer in answers if isinstance(answer, MessageCenterError)]
    if answers:
        stored_count = len(answers) - len(errors)
        failure.add_note(f"messages that publish_many was given before that: {len(answers)}; stored: {stored_count}")
    if errors:
        failure.add_note(f"{len(errors)} failed, the first of them with {errors[0].reason}: {errors[0].message}")
