"""What a handler receives and what a publisher gets back.

Both are thin views of the protobuf message that brought them: a field is turned into Python when it is asked for,
because at tens of thousands of messages a second most fields never are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from msgbroker.client.values.bodies import Body
from msgbroker.contract import limits
from msgbroker.contract.errors import InvalidSettingError
from msgbroker.v1 import publisher_pb2, subscriber_pb2

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Message:
    """A message as a handler receives it.

    A handler that takes its body as well gets it beside, as its second parameter: see `MessageCenter.subscriber`.

    Example:
        @center.subscriber(group="SG_POINTS", topic="TP_TRADE", event_code="EC_PAID")
        async def add_points(message: Message) -> None:
            print(message.message_id, message.attempt, message.json())
    """

    __slots__ = ("_delivery", "_headers", "_queue_id", "_said")

    def __init__(self, delivery: subscriber_pb2.Delivery, queue_id: int) -> None:
        self._delivery = delivery
        self._said = delivery.message
        self._queue_id = queue_id
        self._headers: dict[str, str] | None = None

    @property
    def topic(self) -> str:
        """The name of the topic that the message was published to."""
        return self._said.topic

    @property
    def event_code(self) -> str:
        """The name of the event code that it was published with."""
        return self._said.event_code

    @property
    def body(self) -> bytes:
        """The body as it was published, in bytes; `text` and `json` read it."""
        return self._said.body

    @property
    def headers(self) -> dict[str, str]:
        """The headers as they were published."""
        if self._headers is None:
            self._headers = dict(self._said.headers)
        return self._headers

    @property
    def key(self) -> str:
        """What the message is about; empty if the publisher did not say."""
        return self._said.key

    @property
    def ordering_key(self) -> str:
        """What picked the message's queue; the key if the publisher gave no other."""
        return self._said.ordering_key or self._said.key

    @property
    def message_id(self) -> UUID:
        """The UUIDv7 that the broker gave the message: the same for every group and attempt."""
        return UUID(bytes=self._delivery.message_id)

    @property
    def queue_id(self) -> int:
        """The id of the queue that holds the message."""
        return self._queue_id

    @property
    def queue_offset(self) -> int:
        """The place of the message in its queue, counted from 0."""
        return self._delivery.queue_offset

    @property
    def attempt(self) -> int:
        """1 for the first attempt to deliver it to this group."""
        return self._delivery.attempt or 1

    @property
    def redrives(self) -> int:
        """How often the message had become a dead letter of this group and was redriven: 0 for most."""
        return self._delivery.redrives

    @property
    def replayed(self) -> bool:
        """Whether it comes to this group alone, because somebody had it replayed."""
        return self._delivery.replayed

    @property
    def stored_at(self) -> datetime:
        """When the message was stored, by the database's clock."""
        return _datetime(self._delivery.stored_at_us)

    @property
    def born_at(self) -> datetime:
        """When the application published it, by its own clock."""
        return _datetime(self._said.born_at_us)

    @property
    def born_host(self) -> str:
        """The name of the host that the message was published from."""
        return self._delivery.born_host

    @property
    def publisher_group(self) -> str:
        """The publisher group that the message came from; empty where the publisher named none."""
        return self._delivery.publisher_group

    @property
    def stress(self) -> bool:
        """Whether this is stress-test traffic: it must have no effect on the real world."""
        return self._delivery.stress

    def extend(self, seconds: float) -> bool:
        """Keep the message for so many seconds from now on, before it is given to somebody else.

        While a handler runs the client does that by itself, again and again. So this is for what keeps it from it: an
        async handler that is about to block its event loop for longer than the ack timeout. It never shortens the time
        there is, and what the group allows at most (`handle_seconds_max`) holds all the same. It is the loop that sends
        it: let it turn for a moment before you block it.

        Args:
            seconds: how long, from now on; at most a day.

        Returns:
            False if the message is somebody else's already: what the handler does now may be done twice.

        Raises:
            InvalidSettingError: *seconds* is out of bounds.

        Example:
            message.extend(300)
            await asyncio.sleep(0.1)
            model.train()
        """
        check_extension(seconds)
        # What was not handed to a handler is nobody's to keep.
        return False

    def text(self) -> str:
        """Return the body as UTF-8 text.

        Raises:
            UnicodeDecodeError: it is not UTF-8.
        """
        return self.body.decode()

    def json(self) -> Any:
        """Return the body read as JSON.

        Raises:
            ValueError: it is not JSON.

        Example:
            order = message.json()
        """
        return json.loads(self.body)

    def __repr__(self) -> str:
        return (
            f"<Message {self.topic}/{self.event_code} {self.message_id} queue {self.queue_id}"
            f" offset {self.queue_offset} attempt {self.attempt}>"
        )


class Receipt:
    """Proof that a message is stored: its id and its place."""

    __slots__ = ("_index", "_result")

    def __init__(self, result: publisher_pb2.PublishResult, index: int) -> None:
        self._result = result
        self._index = index

    @property
    def message_id(self) -> UUID:
        """The UUIDv7 the broker gave the message."""
        return UUID(int=int.from_bytes(self._result.first_message_id, "big") + self._index)

    @property
    def queue_id(self) -> int:
        """The id of the queue that holds the message."""
        return self._result.queue_ids[self._index]

    @property
    def queue_offset(self) -> int:
        """The place of the message in its queue, counted from 0."""
        return self._result.queue_offsets[self._index]

    @property
    def stored_at(self) -> datetime:
        """When the message was stored, by the database's clock."""
        queue_id = self.queue_id
        ahead = [time.stored_at_us for time in self._result.ahead if time.queue_id == queue_id]
        return _datetime(ahead[0] if ahead else self._result.stored_at_us)

    @property
    def duplicate(self) -> bool:
        """Whether it had been stored before and this is the answer of then (its first answer was lost)."""
        return self._result.duplicate

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Receipt) and self.message_id == other.message_id

    def __hash__(self) -> int:
        return hash(self.message_id)

    def __repr__(self) -> str:
        return f"<Receipt {self.message_id} queue {self.queue_id} offset {self.queue_offset}>"


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message for `publish_many`.

    Example:
        await center.publish_many([OutgoingMessage("TP_TRADE", "EC_PAID", {"order": n}) for n in range(100)])
    """

    topic: str
    event_code: str
    body: Body = b""
    headers: Mapping[str, str] | None = None
    key: str = ""
    ordering_key: str = ""


def check_extension(seconds: float) -> None:
    """Raise InvalidSettingError unless a message may be kept for so many seconds."""
    if not 0 < seconds <= limits.HANDLE_SECONDS_CEILING:
        raise InvalidSettingError("seconds", f"is {seconds:g}; more than 0, {limits.HANDLE_SECONDS_CEILING:g} at most")


def _datetime(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)
