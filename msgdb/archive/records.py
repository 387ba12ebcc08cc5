"""What is known of days and of the runs that archive them: the values that the statements here take and give."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID


class DayState(StrEnum):
    """How far a day of a table is. Stored: never renamed."""

    PENDING = "PENDING"
    """Not archived yet, or something has come since."""
    ARCHIVED = "ARCHIVED"
    """A verified run has all of it."""
    WAIVED = "WAIVED"
    """Somebody said by name that it may go without."""
    DROPPING = "DROPPING"
    """Its drop is permitted, and under way."""
    DROPPED = "DROPPED"


class RunState(StrEnum):
    """What became of a run. Stored: never renamed."""

    RUNNING = "RUNNING"
    VERIFIED = "VERIFIED"
    """What it wrote was read back, and is what the store has."""
    FAILED = "FAILED"
    LOST = "LOST"
    """Its lease passed, and another run has taken the day."""


@dataclass(frozen=True, slots=True)
class ArchiveRun:
    """A run that has its day claimed."""

    run_id: UUID
    table: str
    day: date
    base_run_id: UUID | None
    """Of a supplement: the run whose files are listed, too."""


class ArchiveRange(NamedTuple):
    """What a run is to contain of one queue; of dead letters all of it, with queue 0 and ids as offsets."""

    queue_id: int
    first_offset: int
    last_offset: int
    last_message_id: UUID


@dataclass(frozen=True, slots=True)
class ClosedDay:
    """A day that nothing more comes for: what there is of it."""

    ranges: tuple[ArchiveRange, ...]
    """In the order of their queues."""
    partition: str
    """The table that has its rows, attached or not."""
    timeline: str
    closed_at: datetime
    closed_lsn: str
    """What a replica must have replayed before the day is read from it."""


class VerifiedRange(NamedTuple):
    """What was read back of one queue, and found to be what PostgreSQL has."""

    queue_id: int
    row_count: int
    digest: str


@dataclass(frozen=True, slots=True)
class VerifiedRun:
    """What a run has written."""

    manifest: str
    """Where it lies."""
    row_count: int
    file_count: int
    file_bytes: int
    ranges: tuple[VerifiedRange, ...]
