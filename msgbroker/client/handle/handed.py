"""A message while this instance has it: what handlers are given, and what the client itself does with it.

Handlers see a `Message`. That it can be settled, is begun, was lost to somebody else and has come again is the client's
business: it is what `HandedMessage` has beside. Both are one object, as there are tens of thousands a second of them.
"""

from __future__ import annotations

from typing import Protocol

from msgbroker.client.values.message import Message, check_extension
from msgbroker.client.values.verdicts import RELEASED_AT_ONCE, Verdict
from msgbroker.v1 import subscriber_pb2


class LaneHandle(Protocol):
    """Where verdicts on the messages of one lane go."""

    queue_id: int

    @property
    def live(self) -> bool:
        """False: the lane was revoked or its stream ended. Messages not started are dropped, verdicts go nowhere."""

    def ack(self, queue_offset: int, attempt: int) -> None:
        """Say that a message is done."""

    def settle(self, queue_offset: int, attempt: int, verdict: Verdict) -> None:
        """Give any other verdict on a message."""

    def begin(self, queue_offset: int, attempt: int) -> None:
        """Say that a handler has begun with a message."""

    def extend(self, queue_offset: int, attempt: int, seconds: float) -> bool:
        """Ask to keep a message for so long from now on; return False if it is too late. From any thread."""


class _NoLane:
    """The handle of messages that are somebody else's: whatever is said of them goes nowhere."""

    __slots__ = ("live", "queue_id")

    def __init__(self, queue_id: int) -> None:
        self.queue_id = queue_id
        self.live = False

    def ack(self, queue_offset: int, attempt: int) -> None:
        """Do nothing: nobody waits for a verdict on this message."""

    def settle(self, queue_offset: int, attempt: int, verdict: Verdict) -> None:
        """Do nothing: nobody waits for a verdict on this message."""

    def begin(self, queue_offset: int, attempt: int) -> None:
        """Do nothing: nobody is told that this message is begun."""

    def extend(self, queue_offset: int, attempt: int, seconds: float) -> bool:  # noqa: ARG002 - a LaneHandle's
        """Return False: nobody keeps this message for longer."""
        return False


class HandedMessage(Message):
    """A message that was handed to this instance, and what becomes of it here."""

    __slots__ = ("_deadline", "_lane")

    def __init__(self, delivery: subscriber_pb2.Delivery, lane: LaneHandle, deadline: float) -> None:
        # Not by way of Message's own, and its lane knows the queue: nothing more is done for each message than must be.
        self._delivery = delivery
        self._said = delivery.message
        self._headers = None
        self._lane = lane
        self._deadline = deadline

    # --- what is known of it ----------------------------------------------------------------------------------------

    @property
    def queue_id(self) -> int:
        """The id of the queue that holds the message."""
        return self._lane.queue_id

    @property
    def id_bytes(self) -> bytes:
        """The message's id in the bytes in which it was sent."""
        return self._delivery.message_id

    @property
    def begin_by(self) -> float:
        """Until when, by the loop's clock, a handler must have begun with it."""
        return self._deadline

    @property
    def is_held(self) -> bool:
        """Whether nobody else was given it, as far as is known."""
        return self._lane.live

    def is_live(self, now: float) -> bool:
        """Whether a handler may begin with it: its lane was not revoked, and its time to be begun has not passed."""
        return self._lane.live and now < self._deadline

    def is_of(self, lane: LaneHandle) -> bool:
        """Whether *lane* handed it out."""
        return self._lane is lane

    # --- what is said of it to the broker ---------------------------------------------------------------------------

    def begin(self) -> None:
        """Say that it is begun, as its handler takes a while."""
        self._lane.begin(self._delivery.queue_offset, self._delivery.attempt or 1)

    def extend(self, seconds: float) -> bool:
        """Ask for more time, as `Message.extend` says: for its handler, or for the client where that takes long."""
        check_extension(seconds)
        return self._lane.extend(self._delivery.queue_offset, self._delivery.attempt or 1, seconds)

    def ack(self) -> None:
        """Settle it as done, when its handler returns."""
        delivery = self._delivery
        self._lane.ack(delivery.queue_offset, delivery.attempt)

    def settle(self, verdict: Verdict) -> None:
        """Settle it in another way, when its handler raises or is not called."""
        self._lane.settle(self._delivery.queue_offset, self._delivery.attempt or 1, verdict)

    # --- when it goes, and comes again ------------------------------------------------------------------------------

    def give_back(self) -> None:
        """Release it at once, and say nothing of it any more, whatever its handler still does."""
        self.settle(RELEASED_AT_ONCE)
        self.lose()

    def lose(self) -> None:
        """Say nothing of it any more: it is somebody else's."""
        self._lane = _NoLane(self._lane.queue_id)

    def come_again(self, again: HandedMessage) -> None:
        """Become another hand-out of the same message, which has come while its handler still runs."""
        self._delivery, self._lane, self._deadline = again._delivery, again._lane, again._deadline
