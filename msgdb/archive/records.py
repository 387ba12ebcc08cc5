"""What is known of days and of the runs that archive them: the values that the statements here take and give."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Final, NamedTuple
from uuid import UUID

THERE_AGAIN: Final = "it was dropped, and has rows again"
"""Why a day waits of which nothing was noted since its drop."""


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
    """Its lease passed, and another run has taken the day, or its drop was permitted."""


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


class RangeStatus(NamedTuple):
    """What a run is to contain of one queue, and what it was found to have."""

    queue_id: int
    first_offset: int
    last_offset: int
    last_message_id: UUID
    row_count: int | None
    """None, like the digest: not verified."""
    digest: str | None


class RunStatus(NamedTuple):
    """What is known of a run, whatever became of it."""

    run_id: UUID
    table: str
    day: date
    state: RunState
    base_run_id: UUID | None
    holder: str
    begun_at: datetime
    lease_until: datetime
    is_alive: bool
    """Whether it runs, and its lease has not passed."""
    timeline: str | None
    closed_at: datetime | None
    ended_at: datetime | None
    failure: str | None
    manifest: str | None
    row_count: int | None
    file_count: int | None
    file_bytes: int | None


@dataclass(frozen=True, slots=True)
class DayStatus:
    """What is known of a day, and of its runs."""

    table: str
    day: date
    state: DayState
    reason: str | None
    """Why it is waived, or pending again."""
    changed_at: datetime | None
    """None: nothing was noted of it yet."""
    is_required: bool
    """Whether it must be archived before it is dropped."""
    is_stored: bool
    """Whether the store has it: its partition, or rows of it."""
    archived_by: RunStatus | None
    """The run that readers go by."""
    last_run: RunStatus | None
    """The one that began last, whatever became of it."""

    @property
    def is_waiting(self) -> bool:
        """Whether its drop waits for a run: nothing has archived it, or it has rows again after it was dropped."""
        is_open = self.state in {DayState.PENDING, DayState.DROPPED}
        return is_open and self.is_required and self.is_stored


class WaitingDay(NamedTuple):
    """A day that must be archived before it is dropped, and is not."""

    table: str
    day: date
    waits_seconds: float
    """Since the day was over."""
    reason: str
    """For people."""
