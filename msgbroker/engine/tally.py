"""What is counted of a lane's messages, by their types: acknowledged, to be tried again, given up on.

A lane says what happened to whom it was given (`Tally`), and does not add up: a batch that was handed out at once and
is acknowledged at once is said in one call, however many messages it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from msgbroker.engine.messages import MessageT


class Counted(NamedTuple):
    """What is counted of messages that lie behind each other in a queue: an entry in each column for each of them."""

    event_codes: Sequence[str]
    sizes: Sequence[int]
    """How many bytes each counts on its way to an instance."""
    stress: Sequence[bool] = ()
    """Whether each is stress traffic; empty where none is, as nearly always."""

    def part(self, low: int, high: int) -> Counted:
        """Return what is counted of the messages number *low* to below *high*."""
        return Counted(self.event_codes[low:high], self.sizes[low:high], self.stress[low:high])


UNSEEN: Final = Counted(("",), (0,))
"""Of one message that has not been here since the lane was claimed: of which type it is nobody knows."""


def counted_of(batch: Sequence[MessageT]) -> Counted:
    """Return what is counted of the messages of a batch."""
    stress = [message.stress for message in batch]
    return Counted(
        [message.event_code for message in batch],
        [message.size_bytes for message in batch],
        stress if True in stress else (),
    )


class Tally(Protocol):
    """Who adds up what becomes of a lane's messages."""

    def delivered(self, counted: Counted, stored_at_us: Sequence[int]) -> None:
        """Count messages that were acknowledged. They lie in the order of their queue, so no time is before another."""
        ...

    def retried(self, counted: Counted) -> None:
        """Count messages whose attempt failed, and that come again."""
        ...

    def dead_lettered(self, counted: Counted) -> None:
        """Count messages that became dead letters."""
        ...


class NoTally:
    """Counts nothing: for lanes of which nobody asks."""

    def delivered(self, counted: Counted, stored_at_us: Sequence[int]) -> None:
        """Count nothing."""

    def retried(self, counted: Counted) -> None:
        """Count nothing."""

    def dead_lettered(self, counted: Counted) -> None:
        """Count nothing."""
