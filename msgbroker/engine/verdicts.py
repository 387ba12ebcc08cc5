"""What an instance may say of a message it was given, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What an instance says of a message."""

    ACK = "ACK"
    """Done: settled."""
    RETRY = "RETRY"
    """Failed: the next attempt, or a dead letter after the last."""
    RELEASE = "RELEASE"
    """Given back: comes again, and the attempt does not count."""
    REJECT = "REJECT"
    """Will never work: a dead letter."""
    UNREADABLE = "UNREADABLE"
    """Rejected because its body cannot be read: a dead letter that says so."""


class DeadLetterReason(StrEnum):
    """Why a message became a dead letter. Stored: never renamed."""

    ATTEMPTS_EXHAUSTED = "ATTEMPTS_EXHAUSTED"
    REJECTED = "REJECTED"
    UNREADABLE_BODY = "UNREADABLE_BODY"
    EXPIRED = "EXPIRED"


@dataclass(frozen=True, slots=True)
class Settled:
    """What a settlement did."""

    count: int
    """Messages it decided."""
    stale: int
    """Messages it named that were not in flight with that instance and attempt: nothing changed for them."""
