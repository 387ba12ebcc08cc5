"""What a lane persists and is built from. Standard library only: the engine makes these, `leases` stores them.

Times that only say "when from now" are seconds relative to the database's clock, because no two clocks agree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

_RANGES_PER_ROW: Final = 5
"""How many ranges count as one row: a range takes a fifth of a row's time to be put together and written."""


SHELVED_SECONDS: Final = 100 * 365 * 86_400.0
"""When a shelved message would be due: to a broker that does not know of shelves, never."""


class LaneKey(NamedTuple):
    """The name of a lane and its cursor: group, member and queue."""

    group_id: int
    member: str
    """The instance id in a broadcast group; empty in all others."""
    queue_id: int


class LaneEpoch(NamedTuple):
    """A lane, and the epoch its owner claimed it with."""

    key: LaneKey
    epoch: int


class LaneToClaim(NamedTuple):
    """A lane a broker wants, and where its cursor starts if there is none yet."""

    group_id: int
    member: str
    queue_id: int
    initial_offset: int

    @property
    def key(self) -> LaneKey:
        """Return the lane's name."""
        return LaneKey(self.group_id, self.member, self.queue_id)


OffsetRange = tuple[int, int]
"""A range of offsets: the first one, and the one after the last."""


class LaneReset(NamedTuple):
    """That a lane was put somewhere by hand: from there on its subscriptions count, though they may start later."""

    offset: int
    """Where it was put."""
    subscription_id: int
    """Of subscriptions that are younger than this one it says nothing: they count from their own start."""


class MatchingShare(NamedTuple):
    """Which share of what a lane read lately its group gets."""

    asked: int = 0
    """What the subscriptions asked for, as a number: of others it says nothing."""
    share: float = 0.0
    read: float = 0.0
    """From how many messages that was learnt; from none: nothing is known."""


NOTHING_LEARNT: Final = MatchingShare()


@dataclass(frozen=True, slots=True)
class ClaimedLane:
    """A lane's persisted state at the moment of its claim."""

    key: LaneKey
    epoch: int
    """The epoch of the new owner: each of its writes names it, and those of earlier owners match nothing."""
    acked_offset: int
    """The offset below which all is settled."""
    acked_ranges: list[OffsetRange]
    """The ranges above `acked_offset` that are settled as well, ascending."""
    reset: LaneReset | None = None
    """Where it was put by hand the last time; None: it never was."""
    matching: MatchingShare = NOTHING_LEARNT


@dataclass(frozen=True, slots=True)
class RedeliveryRow:
    """A message that waits for its next attempt, as loaded."""

    queue_offset: int
    stored_at_us: int
    attempt: int
    """The attempt that comes next."""
    due_in_seconds: float
    """How long until it is due, from the moment of loading; negative if it was due before."""
    ordering_key: str | None
    shelved_by: str | None = None
    """The paused subscriptions that want it, if only these do: it waits for them, whenever it is due."""


@dataclass(frozen=True, slots=True)
class RedeliveryUpsert:
    """A message that is to wait for its next attempt."""

    queue_offset: int
    stored_at_us: int
    attempt: int
    due_in_seconds: float
    ordering_key: str | None
    last_error: str | None
    shelved_by: str | None = None
    """The paused subscriptions that want it, if only these do."""


@dataclass(frozen=True, slots=True)
class DeadLetterMove:
    """A message whose attempts are over for the group: it is copied to the dead letters."""

    queue_offset: int
    stored_at_us: int
    attempts: int
    reason: str
    """Why it becomes one: ATTEMPTS_EXHAUSTED, REJECTED, UNREADABLE_BODY or EXPIRED."""
    last_error: str | None
    had_row: bool
    """Whether it has a redelivery row, which goes with it."""


@dataclass(frozen=True, slots=True)
class LaneCheckpoint:
    """What one lane wants persisted, all of it or nothing."""

    key: LaneKey
    epoch: int
    acked_offset: int
    acked_ranges: list[OffsetRange]
    redeliveries: list[RedeliveryUpsert] = field(default_factory=list)
    redelivered: list[int] = field(default_factory=list)
    """Offsets whose redelivery rows are done with."""
    dead_letters: list[DeadLetterMove] = field(default_factory=list)
    matching: MatchingShare = NOTHING_LEARNT

    @property
    def change_count(self) -> int:
        """How many rows it writes beside its cursor, or what the cursor's ranges cost, in rows."""
        rows = len(self.redeliveries) + len(self.redelivered) + len(self.dead_letters)
        return rows + len(self.acked_ranges) // _RANGES_PER_ROW
