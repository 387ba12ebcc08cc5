"""What is known of whether an instance has begun with a message it holds: only what was begun can have failed."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from msgbroker.engine.verdicts import Held


class Begun(Enum):
    """Whether a message in flight was begun, as far as its instance says."""

    NO = auto()
    """The instance says what it begins, and has not said it of this one: it does not count, whatever happens."""
    UNKNOWN = auto()
    """The instance does not say what it begins: no answer in time counts, the end of its stream does not."""
    YES = auto()
    """It has said so, or it is blamed: both count."""


class Late(NamedTuple):
    """A message that an instance has begun and not answered in time."""

    instance_id: str
    queue_offset: int
    attempt: int


class FirstHeld(NamedTuple):
    """Of what an instance holds of one lane, the message that it was handed first."""

    place: int
    """It was handed so many messages before, over all lanes."""
    held: Held
    """That one message."""
    has_begun: bool
    """Whether it has begun any of what it holds of this lane."""
