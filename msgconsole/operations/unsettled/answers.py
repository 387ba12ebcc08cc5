"""What is asked, and the answer: what a group has not settled, what comes next, and whether that is all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from msgbroker.contract.errors import InvalidSettingError
from msgconsole.operations.status.answers import State

COUNT_MAX: Final = 1_000
UNSETTLED_STATES: Final = (State.IN_FLIGHT, State.RETRYING, State.SHELVED, State.PENDING)
"""What an unsettled message may be, in the words of its status."""
BEGUN_STATES: Final = (State.IN_FLIGHT, State.RETRYING, State.SHELVED)
"""What is listed unless it is said otherwise. What is ready for the next instance with room may be a thousand messages,
and keeps nobody from anything: of it there is a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedUnsettled:
    """What of a group is asked for; None: whatever it is, but for the state. Raises InvalidSettingError."""

    namespace: str
    group: str
    topic: str | None = None
    queue_id: int | None = None
    state: State | None = None
    """None: all BEGUN_STATES."""
    instance_id: str | None = None
    """Only what this instance has."""
    limit: int = 50

    def __post_init__(self) -> None:
        if self.state is not None and self.state not in UNSETTLED_STATES:
            raise InvalidSettingError("state", f"must be one of {', '.join(UNSETTLED_STATES)}")
        if not 1 <= self.limit <= COUNT_MAX:
            raise InvalidSettingError("limit", f"must be 1 to {COUNT_MAX:,}")
        if self.instance_id is not None and self.state not in {None, State.IN_FLIGHT}:
            raise InvalidSettingError("instance", f"has what is {State.IN_FLIGHT}, and nothing that is {self.state}")

    @property
    def is_all(self) -> bool:
        """Whether all that has begun is asked for, and not only what is in one state, or with one instance."""
        return self.state is None and self.instance_id is None

    @property
    def is_pending_asked_for(self) -> bool:
        """Whether what is read, and waits for room, is listed or counted."""
        return self.is_all or self.state is State.PENDING


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsettledRow:
    """A message that a group has begun and not settled, as people see it."""

    age_seconds: float
    """Since it was stored."""
    stored_at: datetime
    topic: str
    event_code: str | None
    """None: the message is gone, with its day; so with the next two."""
    message_id: UUID | None
    key: str | None
    queue_id: int
    queue_offset: int
    state: State
    attempt: int
    """The attempt that is under way, or comes next."""
    detail: str
    """The same for people, with what is behind it."""
    instance_id: str | None = None
    """IN_FLIGHT: with whom. The times of that are by the clock of its broker's machine."""
    host: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    """When it is taken back, unless the instance asks for more time."""
    latest: datetime | None = None
    """When it is taken back however often the instance asks; None: it may not."""
    held_seconds: float | None = None
    """For how long the instance has it, by two clocks."""
    has_begun: bool | None = None
    """Whether the instance has said that it has begun it. One that never says so has not."""
    due_at: datetime | None = None
    """RETRYING: when its next attempt is due."""
    last_error: str | None = None
    broker: str | None = None
    """By whose word; None: by what is stored."""
    is_served: bool
    """Whether a broker serves its lane; else no instance of the group is connected that could take it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRow:
    """The first message of a queue that is stored and in nobody's hands: it comes next, if the group asks for it."""

    age_seconds: float
    stored_at: datetime
    topic: str
    event_code: str
    message_id: UUID
    key: str | None
    queue_id: int
    queue_offset: int
    broker: str | None
    """By whose word nobody has read it yet; None: by what is stored, and where its lane is served an instance may have
    it."""
    is_served: bool
    """As above."""
    detail: str
    """The same for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsettledReport:
    """What a group has not settled."""

    namespace: str
    group: str
    paused: bool
    messages: Sequence[UnsettledRow]
    """The oldest first."""
    has_more: bool
    """Whether there are more, later ones."""
    ready: int
    """How many wait for nothing but an instance that has room, by what brokers have told: those that are PENDING, and
    of those that are RETRYING the ones that are due."""
    next: Sequence[NextRow]
    """Of queues of which nothing is in flight; the oldest first."""
    has_more_next: bool
    why_not: Sequence[str]
    """Why something may be missing, or be told by the store alone: sentences without their ends."""

    @property
    def is_complete(self) -> bool:
        """Whether it is all."""
        return not self.why_not and not self.has_more and not self.has_more_next
