"""The publishing side of a SyncMessageCenter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future

from msgbroker.client.core.background_core import BackgroundCore
from msgbroker.client.core.center_core import CenterCore
from msgbroker.client.publish.handover import ManyReceipts, SoonReceipt
from msgbroker.client.publish.publisher import encode_outgoing, note_answers, publish_within
from msgbroker.client.values.bodies import Body
from msgbroker.client.values.message import OutgoingMessage, Receipt
from msgbroker.contract.errors import MessageCenterError


class SyncPublishingCenter:
    """The calls that publish, from any thread; `PublishingCenter` says why the arguments are written out in each."""

    def __init__(self, core: CenterCore) -> None:
        self._core = core
        self._encode = core.encode
        self._background = BackgroundCore(core)

    def publish(
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
            receipt = center.publish("TP_TRADE", "EC_PAID", b"...", key="order-1")
        """
        encoded = self._encode(topic, event_code, body, headers=headers, key=key, ordering_key=ordering_key)

        async def publish() -> Receipt:
            buffer = self._core.open_buffer()
            if timeout_seconds is None:
                return await buffer.offer_in_turn(encoded)
            return await publish_within(buffer, encoded, timeout_seconds, self._core.config.addresses_text)

        return self._background.call(publish())

    def publish_soon(
        self,
        topic: str,
        event_code: str,
        body: Body = b"",
        *,
        headers: Mapping[str, str] | None = None,
        key: str = "",
        ordering_key: str = "",
    ) -> Future[Receipt]:
        """Publish a message without waiting for its answer; waits for room if too many are unanswered.

        Messages are stored in the order of the calls of a thread.

        Args:
            topic: the topic's name.
            event_code: the event code's name.
            body: bytes, text, a dict, list or dataclass (sent as JSON) or a pydantic model.
            headers: HEADER subscriptions select by them; at most 64, and 4 KiB in all.
            key: what the message is about (an order id); it can be looked up by it.
            ordering_key: messages with the same one stay in order; default: *key*.

        Returns:
            A `concurrent.futures.Future` of the receipt; whatever is wrong with the message is raised by it.

        Raises:
            ClientBufferFullError: there was no room within the publish timeout.

        Example:
            futures = [center.publish_soon("TP_TRADE", "EC_PAID", row) for row in rows]
            receipts = [future.result() for future in futures]
        """
        handover = self._background.handover()
        try:
            encoded = self._encode(topic, event_code, body, headers=headers, key=key, ordering_key=ordering_key)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the message
            refused: Future[Receipt] = Future()
            refused.set_exception(error)
            return refused
        receipt = SoonReceipt()
        handover.put(encoded, receipt, self._core.config.publish_timeout_seconds)
        return receipt

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

        async def publish() -> bool:
            return self._core.open_buffer().offer_one_way(encoded)

        return self._background.call(publish())

    def publish_many(self, messages: Iterable[OutgoingMessage]) -> list[Receipt | MessageCenterError]:
        """Publish messages in order and wait for all answers: for each, its receipt or its error.

        One bad message does not hold up its neighbours: what is wrong with it is its answer, a body of a type that
        cannot be sent (BodyTypeError) as well as what is no OutgoingMessage (InvalidSettingError).

        Args:
            messages: any number; they are taken as there is room, in the caller's thread. What this iterable itself
                raises is raised, once those before are answered, with a note of what became of them.

        Example:
            answers = center.publish_many(OutgoingMessage("TP_TRADE", "EC_PAID", row) for row in rows)
        """
        handover = self._background.handover()
        receipts = ManyReceipts()
        refused: list[MessageCenterError | None] = []
        try:
            for index, message in enumerate(messages):
                try:
                    handover.put(encode_outgoing(self._encode, message, index), receipts)
                except MessageCenterError as error:
                    refused.append(error)
                else:
                    refused.append(None)
        except Exception as failure:
            note_answers(failure, receipts.wait_beside(refused))
            raise
        return receipts.wait_beside(refused)

    def flush(self) -> None:
        """Wait until everything published so far has been answered (or has failed).

        Example:
            center.flush()
        """
        self._background.call(self._core.flush())
