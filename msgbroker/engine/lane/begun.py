"""What is known of whether an instance has begun with a message it holds: only what was begun can have failed."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from msgbroker.engine.verdicts import Held


class Begun(Enum):
    """Whether a message in flight was begun, as far as its instance says."""

    NO = auto()
    """The instance says what it begins, and has not said so of this one: whatever happens, that was no attempt."""
    UNKNOWN = auto()
    """The instance never says what it begins: no answer in time was an attempt, the end of its stream was none."""
    YES = auto()
    """It was begun, or is blamed: no answer in time was an attempt, and so was the end of its instance's stream."""


class Late(NamedTuple):
    """A message that an instance has begun and not answered in time."""

    instance_id: str
    queue_offset: int
    attempt: int


class FirstHeld(NamedTuple):
    """The message that an instance was handed first, of those it holds of one lane."""

    place: int
    """How many messages its instance had been handed before it, over all lanes."""
    held: Held
    """The message, as its instance would name it."""
    has_begun: bool
    """Whether the instance has begun anything of what it holds of this lane."""
