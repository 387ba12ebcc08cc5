"""What an instance may say of messages it was given, and what comes of it.

A front door makes these values of what it hears, and they travel whole through the group to the lane, which alone
decides what of them is stale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from msgdb.lanes.records import OffsetRange


class Verdict(StrEnum):
    """What an instance says of a message."""

    ACK = "ACK"
    """The message is done, and settled."""
    RETRY = "RETRY"
    """The attempt failed: the next one comes, or a dead letter after the last."""
    RELEASE = "RELEASE"
    """The message is given back: it comes again, and the attempt does not count."""
    REJECT = "REJECT"
    """The message will never work: it becomes a dead letter now."""
    UNREADABLE = "UNREADABLE"
    """The message is rejected because its body cannot be read: a dead letter that says so."""


class DeadLetterReason(StrEnum):
    """Why a message became a dead letter. Stored: never renamed."""

    ATTEMPTS_EXHAUSTED = "ATTEMPTS_EXHAUSTED"
    REJECTED = "REJECTED"
    UNREADABLE_BODY = "UNREADABLE_BODY"
    EXPIRED = "EXPIRED"
    SKIPPED = "SKIPPED"
    """An operator gave it up."""


@dataclass(frozen=True, slots=True)
class Held:
    """Messages of one lane that an instance says it holds, to begin them, to keep them, or to settle them."""

    queue_id: int
    epoch: int
    """The epoch of the owner that handed them out. To any other owner all of it is stale."""
    attempt: int
    ranges: Sequence[OffsetRange]
    """Whatever the instance holds within them is meant. They ascend, do not overlap, and none is empty."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """One verdict on messages that an instance holds."""

    held: Held
    verdict: Verdict
    delay_seconds: float | None = None
    """How long they wait before they come again, for RETRY (None: by the schedule) and RELEASE (None: at once)."""
    error: str = ""
    """What went wrong, for people."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a settlement."""

    count: int
    """How many messages it decided."""
    stale: int
    """How many it named that were not in flight with that instance, attempt and epoch: for them nothing changed."""
