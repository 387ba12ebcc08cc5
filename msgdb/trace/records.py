"""What is traced: kinds of events, and an event as a row. Standard library only."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

RANGE_MAX: Final = 1_000
"""So many consecutive messages an event is of at most: who looks for those of one message looks so far before it."""
DETAIL_CHARS_MAX: Final = 300


class TraceKind(StrEnum):
    """What happened. Stored: never renamed."""

    STORED = "STORED"
    HANDED_OUT = "HANDED_OUT"
    """Written of what was still with its instance a moment later: else the event that ended it says it, too."""
    ACKED = "ACKED"
    RETRIED = "RETRIED"
    """The instance said that the attempt failed."""
    RELEASED = "RELEASED"
    REJECTED = "REJECTED"
    UNREADABLE = "UNREADABLE"
    TIMED_OUT = "TIMED_OUT"
    INSTANCE_GONE = "INSTANCE_GONE"
    WITHDRAWN = "WITHDRAWN"
    """It was never written to the instance, and came again."""
    DENIED = "DENIED"
    """Stress traffic that the group may not see, found out as it was handed out."""
    LANE_GONE = "LANE_GONE"
    """The broker gave the lane up while the message was with an instance: what is said of it afterwards is stale."""
    DEAD_LETTERED = "DEAD_LETTERED"
    LEFT_OUT = "LEFT_OUT"
    """So many events are not here."""


class TraceEvent(NamedTuple):
    """What happened to some consecutive messages of a queue, at a broker."""

    at_us: int
    """When, in microseconds since 1970, by the database's clock as the broker knows it."""
    kind: str
    """One of `TraceKind`; another text where a later version wrote it."""
    broker: str
    """Its address."""
    queue_id: int
    """0: it is of no message, but says what was left out."""
    first_offset: int
    last_offset: int
    group_id: int | None = None
    instance: str | None = None
    attempt: int | None = None
    handed_at_us: int | None = None
    """When what ends here was handed out."""
    detail: str | None = None
    """What failed, or why."""
    left_out: int | None = None
    """How many events are left out, at most."""
