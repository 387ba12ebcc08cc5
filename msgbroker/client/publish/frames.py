"""What the outbox deals in: frames, places between messages, and those who wait."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Generic, Protocol, TypeVar


class Waiter(Protocol):
    """Somebody who waits for the answer to a message: a future, as a rule."""

    def done(self) -> bool:
        """Return whether nobody waits any longer: it is answered or cancelled."""
        ...


W = TypeVar("W", bound=Waiter)


@dataclass(slots=True)
class Frame(Generic[W]):
    """Messages that are sent, stored and answered together."""

    sequence: int
    messages: list[bytes]
    """The messages in the bytes of a frame's entries, which `wire` makes."""
    waiters: list[W | None]
    """Who waits for each message; None where nobody does (one-way)."""
    size_bytes: int
    expiries: list[float]
    """When whoever waits for each message has waited long enough."""
    first_expiry: float
    first_number: int
    """The number of its oldest message, by which `Outbox.mark` counts."""
    is_expired: bool = False
    """Whether nobody waits for any of its messages any more."""
    is_repeat: bool = False
    """Whether it was under way when an earlier stream ended: that copy may yet be stored, or has been."""
    _asked: frozenset[W | None] | None = None

    def holds(self, waiter: W) -> bool:
        """Return whether *waiter* waits for a message of this frame."""
        if self._asked is None:
            # Who asks for one asks for many, when their time is over.
            self._asked = frozenset(self.waiters)
        return waiter in self._asked


class Reaction(Enum):
    """What the driver has to do after a frame has failed."""

    IGNORE = auto()
    """Do nothing: the frame is not one of ours (any more)."""
    WAIT = auto()
    """Go on reading; when `is_quiet`, wait a moment and `rewind`."""
    RESTART = auto()
    """End the stream, `restart` under a new id, connect again."""


@dataclass(slots=True)
class GivenUp(Generic[W]):
    """Those who wait in vain, by what may have become of their messages."""

    never_sent: list[W] = field(default_factory=list)
    """Their messages were never sent, or are not stored for certain."""
    maybe_stored: list[W] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Mark:
    """A place in the order of the messages: behind all that had been offered when it was set."""

    number: int
