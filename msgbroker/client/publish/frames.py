"""What the outbox deals in: frames, places between messages, and those who wait."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Generic, Protocol, TypeVar


class Waiter(Protocol):
    """Who waits for an answer: a future."""

    def done(self) -> bool:
        """Whether it waits no longer."""
        ...


W = TypeVar("W", bound=Waiter)


@dataclass(slots=True)
class Frame(Generic[W]):
    """Messages that are sent, stored and answered together."""

    sequence: int
    messages: list[bytes]
    """Each encoded; see `wire`."""
    waiters: list[W | None]
    """One for each message; None where nobody waits (one-way)."""
    size_bytes: int
    expiries: list[float]
    """Of each message: when whoever waits for it has waited long enough."""
    first_expiry: float
    first_number: int
    """Of its oldest message; see `Outbox.mark`."""
    is_expired: bool = False
    """Nobody waits for any of it any more."""
    is_repeat: bool = False
    """It was under way when an earlier stream ended: that copy may yet be stored, or has been."""
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
    """Not one of ours (any more)."""
    WAIT = auto()
    """Go on reading; when `is_quiet`, wait a moment and `rewind`."""
    RESTART = auto()
    """End the stream, `restart` under a new id, connect again."""


@dataclass(slots=True)
class GivenUp(Generic[W]):
    """Who waits in vain."""

    never_sent: list[W] = field(default_factory=list)
    """Or not stored for certain."""
    maybe_stored: list[W] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Mark:
    """A place in the order of the messages: behind all that had been offered when it was set."""

    number: int
