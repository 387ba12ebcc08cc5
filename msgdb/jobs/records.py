"""What a job is, as its row has it. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

RATE_DEFAULT: Final = 1_000.0
"""What runs beside a job hardly feels it: p99 of others 1.5 times of alone at most, on two cores."""
RATE_MAX: Final = 50_000.0
"""How many messages a second a job may do at most."""
FAILURES_KEPT_MAX: Final = 1_000
"""Of so many messages that failed a job keeps what they failed of; the others are counted."""


class JobKind(StrEnum):
    """What a job does. Stored: never renamed."""

    REDRIVE = "REDRIVE"
    """Deliver dead letters again, each to the group it failed in."""
    PURGE = "PURGE"
    """Delete dead letters."""
    REPLAY = "REPLAY"
    """Deliver what the log holds again, to one group."""


class JobState(StrEnum):
    """How a job stands. Stored: never renamed."""

    RUNNING = "RUNNING"
    """A broker is at it, or will be."""
    PAUSED = "PAUSED"
    CANCELLED = "CANCELLED"
    """It was ended by hand: what it did before stays done."""
    DONE = "DONE"
    FAILED = "FAILED"
    """It cannot go on, and says why."""


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job that is to begin."""

    kind: JobKind
    namespace: str
    thing: str
    """What it is about, for people."""
    spec: dict[str, Any]
    """All that it goes by, as it was asked for: what happens later changes nothing of it."""
    total: int
    """How many messages the dry run counted."""
    rate: float = RATE_DEFAULT
    """How many messages a second it does at most."""


class ClaimedJob(NamedTuple):
    """A job that a broker is at, as it is stored."""

    job_id: int
    epoch: int
    """Of the claim: what is written of the job names it."""
    kind: str
    """A JobKind; or text that this version does not know."""
    spec: dict[str, Any]
    rate: float
    position: dict[str, Any] | None
    """How far it is; None: it has not begun."""
    batch: dict[str, Any] | None
    """What it was in the middle of: to be ended first, whatever its state is."""
    batch_age_seconds: float | None
    """How long ago that was begun."""
    state: JobState
    tries: int
    """How often in a row it has failed so far."""
    lease_seconds: float
    """For how long each step holds it."""


class JobStep(NamedTuple):
    """What a step of a job has done."""

    position: dict[str, Any]
    done: int = 0
    failed: int = 0
    skipped: int = 0
    """Messages that were left as they are, though they were counted before."""
    scanned: int = 0
    """How many offsets were looked at."""


class JobFailure(NamedTuple):
    """A message that a job could not do."""

    item: str
    """Which, for people and programs: `dead letter 17`, `queue 3 offset 18`."""
    error: str
