"""The answer: what became of a message with a group, why, by what that is told, and what it may be instead."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgconsole.operations.brokers.asking import Unanswered


class State(StrEnum):
    """What became of a message with a group."""

    DELIVERED = "DELIVERED"
    """An instance has acknowledged it."""
    PENDING = "PENDING"
    """It comes: it is not settled, as of the last checkpoint of its lane."""
    IN_FLIGHT = "IN_FLIGHT"
    """An instance has it, and has not answered."""
    RETRYING = "RETRYING"
    """It waits for another attempt."""
    SHELVED = "SHELVED"
    """Only paused subscriptions want it: it waits for them."""
    DEAD_LETTER = "DEAD_LETTER"
    EXPIRED = "EXPIRED"
    """Its day is gone, or goes, and the group had not settled it."""
    SKIPPED = "SKIPPED"
    """The group was put behind it by hand, before it was settled."""
    NOT_MATCHED = "NOT_MATCHED"
    """The group does not get it."""
    UNKNOWN = "UNKNOWN"
    """The log has lost its end: what is noted of this place may be of another message, which was lost."""
    GONE = "GONE"
    """Its day is gone: nothing tells what had become of it."""


class Why(StrEnum):
    """Why a group does not get a message."""

    NO_SUBSCRIPTION = "NO_SUBSCRIPTION"
    EXPRESSION_FALSE = "EXPRESSION_FALSE"
    EXPRESSION_FAILED = "EXPRESSION_FAILED"
    SUBSCRIBED_LATER = "SUBSCRIBED_LATER"
    GROUP_CREATED_LATER = "GROUP_CREATED_LATER"
    SUBSCRIPTION_DELETED = "SUBSCRIPTION_DELETED"
    """The subscription that asked for it was deleted before it was handed out."""
    GROUP_DELETED = "GROUP_DELETED"
    """The group was deleted before it had settled it."""
    TOPIC_DELETED = "TOPIC_DELETED"
    """The topic was deleted before the group had settled it."""
    FOR_ANOTHER_GROUP = "FOR_ANOTHER_GROUP"
    """It was redriven or replayed, to another group."""
    STRESS_NOT_ALLOWED = "STRESS_NOT_ALLOWED"
    """It is a stress message, and the group not on the whitelist, or the topic refuses such messages."""


class Basis(StrEnum):
    """What an answer is told by."""

    ROWS = "ROWS"
    """What the message store holds of it: that is so, whatever the configuration is or was."""
    BROKER = "BROKER"
    """What the broker says that serves the lane."""
    THEN = "THEN"
    """The configuration as it was when the message could first be read."""
    LATER = "LATER"
    """A configuration of after that, by which it was read at the earliest."""
    NOW = "NOW"
    """The configuration of now: the message is not settled."""


@dataclass(frozen=True, slots=True)
class Other:
    """What may be so instead, because no row tells by which configuration a lane read a message."""

    state: State
    why: Why | None
    detail: str
    when: str
    """What would have to be so."""


@dataclass(frozen=True, slots=True)
class DeadLetterOf:
    """The dead letter of the message with this group."""

    dead_letter_id: int
    died_at: datetime
    attempts: int
    reason: str
    last_error: str | None
    redriven_by: tuple[int, ...]
    """The jobs that redrove it."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """That a group is no more."""

    at: datetime
    by: str
    """Who deleted it."""
    reason: str
    """Empty where nobody said why."""
    created_at: datetime | None
    subscriptions: tuple[str, ...]
    """What of the topic it subscribed to when the message was stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """What became of a message with one group."""

    group: str
    group_id: int
    state: State
    basis: Basis
    detail: str
    """The same for people, with what is behind it."""
    why: Why | None = None
    others: tuple[Other, ...] = ()
    """What it may be instead; nothing: it is certain."""
    attempt: int | None = None
    """The attempt that comes next, or that an instance has."""
    due_at: datetime | None = None
    last_error: str | None = None
    instance_id: str | None = None
    until: datetime | None = None
    """How long the instance has to answer."""
    dead_letter: DeadLetterOf | None = None
    reset_act_id: int | None = None
    deleted: Deleted | None = None
    """None: the group is there. Of the same name there may be several that are not."""

    @property
    def is_certain(self) -> bool:
        """Whether it can be nothing else."""
        return not self.others


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceStatus:
    """A place of the log where the message lies, and what became of that with each group."""

    queue_id: int
    queue_offset: int
    stored_at: datetime | None
    """None: that is gone with its day."""
    target_group: int | None
    """The only group that it is for, where it was redriven or replayed."""
    redrives: int
    groups: tuple[GroupStatus, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageStatus:
    """What became of a message."""

    message_id: UUID | None
    """None: it is gone with its day, and so is what would tell; so with what follows."""
    namespace: str
    topic: str
    event_code: str | None
    key: str | None
    stress: bool | None
    places: tuple[PlaceStatus, ...]
    has_more_places: bool
    """Whether it lies in more places than are told of: the first, and the newest of the others."""
    unanswered: tuple[Unanswered, ...]
    """The brokers that serve it and did not answer: what only they know is missing."""
    has_more_groups: bool = False
    """Whether there were more groups than are told of: some that were deleted long ago are missing."""

    @property
    def is_complete(self) -> bool:
        """Whether everybody answered who knows something, and all places and groups are told of."""
        return not self.unanswered and not self.has_more_places and not self.has_more_groups
