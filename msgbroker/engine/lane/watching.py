"""What a lane tells of each hand-out's end, for whoever keeps a trace of it. Nothing depends on who listens.

Told is what has happened, in the moment that it does, and once for each message: a first hand-out that was acknowledged
as a whole is told as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from msgbroker.engine.lane.flights import Flight
from msgbroker.engine.lane.redeliveries import Redelivery
from msgbroker.engine.verdicts import Verdict


class Ending(StrEnum):
    """How a hand-out of a message ended. Stored: never renamed."""

    ACKED = "ACKED"
    RETRIED = "RETRIED"
    """Its instance said that the attempt failed."""
    RELEASED = "RELEASED"
    REJECTED = "REJECTED"
    UNREADABLE = "UNREADABLE"
    TIMED_OUT = "TIMED_OUT"
    """Nobody answered in time."""
    INSTANCE_GONE = "INSTANCE_GONE"
    """Its instance's stream ended, or the instance left."""
    WITHDRAWN = "WITHDRAWN"
    """It was never written to its instance."""
    DENIED = "DENIED"
    """The group may not see it (any more): stress traffic. It was never written, perhaps not even handed out."""


OF_VERDICT = {
    Verdict.ACK: Ending.ACKED,
    Verdict.RETRY: Ending.RETRIED,
    Verdict.RELEASE: Ending.RELEASED,
    Verdict.REJECT: Ending.REJECTED,
    Verdict.UNREADABLE: Ending.UNREADABLE,
}


class LaneWatcher(Protocol):
    """Hears how hand-outs of a lane end."""

    def acked(self, flight: Flight) -> None:
        """Hear that first hand-outs were acknowledged: all of *flight*, which is in flight no more."""

    def ended(self, ending: Ending, record: Redelivery, attempt: int, error: str) -> None:
        """Hear how a hand-out ended, which was number *attempt*; *record* says what comes now."""

    def denied(self, offsets: Sequence[int]) -> None:
        """Hear that messages were settled as they were about to be handed out: the group may not see them."""


class Nobody:
    """Hears nothing."""

    def acked(self, flight: Flight) -> None:
        """Do nothing."""

    def ended(self, ending: Ending, record: Redelivery, attempt: int, error: str) -> None:
        """Do nothing."""

    def denied(self, offsets: Sequence[int]) -> None:
        """Do nothing."""
