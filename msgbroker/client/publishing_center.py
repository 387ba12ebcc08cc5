"""The publishing side of a MessageCenter."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from msgbroker.client.core.center_core import CenterCore
from msgbroker.client.publish.publisher import encode_outgoing, note_answers, outcome_of, publish_within
from msgbroker.client.values.bodies import Body
from msgbroker.client.values.message import OutgoingMessage, Receipt
from msgbroker.contract.errors import MessageCenterError


class PublishingCenter:
    """The calls that publish; the publisher connects when the first message comes."""

    # The arguments of a message are written out in each call, here and for blocking code. So editors show them with
    # their defaults, the reference lists them, and Python itself refuses one that is misspelt. Options in a TypedDict,
    # as settings and handlers have them, would have to be looked at for each message to be refused by name.

    def __init__(self, core: CenterCore) -> None:
        self._core = core
        self._encode = core.encode

    async def publish(
        self,
        topic: str,
        event_code: str,
        body: Body = b"",
        *,
        headers: Mapping[str, str] | None = None,
        key: str = "",
        ordering_key: str = "",
        timeout_seconds: float | None = None,
    ) -> Receipt:
        """Publish a message and wait until it is stored.

        Args:
            topic: the topic's name.
            event_code: the event code's name.
            body: bytes, text, a dict, list or dataclass (sent as JSON) or a pydantic model.
            headers: HEADER subscriptions select by them; at most 64, and 4 KiB in all.
            key: what the message is about (an order id); it can be looked up by it.
            ordering_key: messages with the same one stay in order; default: *key*.
            timeout_seconds: instead of the center's `publish_timeout_seconds`.

        Returns:
            The receipt: the message's id and place. It is committed to the database.

        Raises:
            InvalidRequestError: the message can never be stored as it is (BodyTooLargeError, InvalidNameError, ...), or
                *timeout_seconds* is out of bounds (InvalidSettingError).
            NotFoundError: the topic or the event code is not registered.
            FailedPreconditionError: the topic is closed, or the center is.
            UnavailableError: no answer in time; `error.may_be_stored` says whether it may be stored.

        Example:
            receipt = await center.publish("TP_TRADE", "EC_PAID", b"...", headers={"region": "hz"}, key="order-1")
        """
        encoded = self._encode(topic, event_code, body, headers=headers, key=key, ordering_key=ordering_key)
        buffer = self._core.open_buffer()
        if timeout_seconds is None:
            # The way of nearly all messages: the buffer sees to their time.
            return await buffer.offer_in_turn(encoded)
        return await publish_within(buffer, encoded, timeout_seconds, self._core.config.addresses_text)

    def publish_soon(
        self,
        topic: str,
        event_code: str,
        body: Body = b"",
        *,
        headers: Mapping[str, str] | None = None,
        key: str = "",
        ordering_key: str = "",
    ) -> asyncio.Future[Receipt]:
        """Publish a message without waiting; the future that is returned gets the receipt or the error.

        Messages are stored in the order of the calls. The errors of the future are those of `publish`.

        Args:
            topic: the topic's name.
            event_code: the event code's name.
            body: bytes, text, a dict, list or dataclass (sent as JSON) or a pydantic model.
            headers: HEADER subscriptions select by them; at most 64, and 4 KiB in all.
            key: what the message is about (an order id); it can be looked up by it.
            ordering_key: messages with the same one stay in order; default: *key*.

        Raises:
            ClientBufferFullError: too many messages are unanswered; `await center.ready()` waits for room.
            InvalidRequestError: the message can never be stored as it is.

        Example:
            await center.ready()
            future = center.publish_soon("TP_TRADE", "EC_PAID", b"...")
            future.add_done_callback(on_stored)
        """
        encoded = self._encode(topic, event_code, body, headers=headers, key=key, ordering_key=ordering_key)
        return self._core.open_buffer().offer(encoded)

    def publish_one_way(
        self,
        topic: str,
        event_code: str,
        body: Body = b"",
        *,
        headers: Mapping[str, str] | None = None,
        key: str = "",
        ordering_key: str = "",
    ) -> bool:
        """Publish a message whose fate nobody asks about: it is sent, and may be lost or refused in silence.

        Args:
            topic: the topic's name.
            event_code: the event code's name.
            body: bytes, text, a dict, list or dataclass (sent as JSON) or a pydantic model.
            headers: HEADER subscriptions select by them; at most 64, and 4 KiB in all.
            key: what the message is about (an order id); it can be looked up by it.
            ordering_key: messages with the same one stay in order; default: *key*.

        Returns:
            False if it was dropped at once because too many messages are unanswered.

        Raises:
            InvalidRequestError: the message can never be stored as it is.

        Example:
            center.publish_one_way("TP_METRICS", "EC_SAMPLE", {"cpu": 0.7})
        """
        encoded = self._encode(topic, event_code, body, headers=headers, key=key, ordering_key=ordering_key)
        return self._core.open_buffer().offer_one_way(encoded)

    async def publish_many(self, messages: Iterable[OutgoingMessage]) -> list[Receipt | MessageCenterError]:
        """Publish messages in order and wait for all answers: for each, its receipt or its error.

        One bad message does not hold up its neighbours: what is wrong with it is its answer, a body of a type that
        cannot be sent (BodyTypeError) as well as what is no OutgoingMessage (InvalidSettingError).

        Args:
            messages: any number; they are taken as there is room. What this iterable itself raises is raised, once
                those before are answered, with a note of what became of them.

        Example:
            answers = await center.publish_many(OutgoingMessage("TP_TRADE", "EC_PAID", row) for row in rows)
        """
        answers: list[asyncio.Future[Receipt] | MessageCenterError] = []
        buffer = self._core.open_buffer()
        try:
            for index, message in enumerate(messages):
                try:
                    answer = buffer.offer_in_turn(encode_outgoing(self._encode, message, index))
                except MessageCenterError as error:
                    answers.append(error)
                else:
                    answers.append(answer)
                    await buffer.taken(answer)
        except Exception as failure:
            note_answers(failure, [await outcome_of(answer) for answer in answers])
            raise
        return [await outcome_of(answer) for answer in answers]

    async def ready(self) -> None:
        """Wait until there is room for another message; at once if there is.

        Example:
            await center.ready()
            center.publish_soon("TP_TRADE", "EC_PAID", b"...")
        """
        await self._core.open_buffer().room()

    async def flush(self) -> None:
        """Wait until everything published so far has been answered (or has failed).

        Example:
            await center.flush()
        """
        await self._core.flush()

    @property
    def unanswered_count(self) -> int:
        """How many published messages wait for their answer, or for room."""
        return self._core.unanswered_count
