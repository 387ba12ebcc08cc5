"""What a broker routes by: the immutable, whole picture of the configuration at one version.

Plain frozen data, no SQLAlchemy: brokers, the engine's matcher and tests read it. `confdb.snapshot` loads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Headers(dict[str, str]):
    """A message's headers as predicates take them; remembers what the expression engine made of them."""

    prepared: Any = None
    """Of the expression engine: when many groups look at one message, its headers are converted once."""
    looks: int = 0


HeaderPredicate = Callable[[dict[str, str]], bool]
"""A compiled HEADER expression. Raises ExpressionFailedError where it fails on a message."""


class ExpressionFailedError(Exception):
    """A HEADER expression failed on a message, e.g. a header it needs is missing: no match, and counted."""

    def __init__(self, expression: str, problem: str) -> None:
        super().__init__(f"{expression!r}: {problem}")
        self.expression = expression
        self.problem = problem


class TopicKind(StrEnum):
    """Which of the message types of the design the topic takes."""

    NORMAL = "NORMAL"
    ORDERED = "ORDERED"
    SCHEDULED = "SCHEDULED"
    TRANSACTIONAL = "TRANSACTIONAL"


class SubscriptionMode(StrEnum):
    """How a subscription selects."""

    DIRECT = "DIRECT"
    HEADER = "HEADER"


class GroupOrder(StrEnum):
    """What order a subscriber group keeps."""

    NONE = "NONE"
    KEY = "KEY"
    GLOBAL = "GLOBAL"


class GroupMode(StrEnum):
    """Whether a message goes to one instance of the group, or to each."""

    SHARED = "SHARED"
    BROADCAST = "BROADCAST"


class StressOperator(StrEnum):
    """How a stress rule compares a header with its value."""

    EQUALS = "EQUALS"
    PREFIX = "PREFIX"
    EXISTS = "EXISTS"


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """A topic."""

    topic_id: int
    namespace: str
    name: str
    kind: TopicKind
    queue_count: int
    generation: int
    """Of the queue layout: goes up when queue_count changes."""
    body_bytes_max: int
    is_open: bool
    """Unknown event codes register themselves."""
    is_closed: bool
    """Takes no new messages."""
    stress_refused: bool
    """The kill switch: new stress messages are refused, stored ones settled."""
    event_codes: frozenset[str]


@dataclass(frozen=True, slots=True)
class SubscriptionRoute:
    """A subscription of a group to a message type."""

    subscription_id: int
    topic_id: int
    event_code: str
    """`*` is every event code of the topic."""
    mode: SubscriptionMode
    expression: str | None
    predicate: HeaderPredicate | None
    start_offsets: Mapping[int, int]
    """By queue_id. A queue that is not named starts at 0: it is younger than the subscription."""
    cost: int = 0
    """What evaluating its expression can cost, in steps, by its structure."""


@dataclass(frozen=True, slots=True)
class GroupRoute:
    """A subscriber group and how it wants its messages."""

    group_id: int
    namespace: str
    name: str
    ack_timeout_seconds: float
    retry_schedule_seconds: tuple[float, ...]
    attempts_max: int
    unsettled_max: int
    """Per instance."""
    order: GroupOrder
    mode: GroupMode
    paused: bool
    subscriptions: tuple[SubscriptionRoute, ...]


@dataclass(frozen=True, slots=True)
class StressRule:
    """Marks a message as stress traffic when a header matches."""

    header: str
    operator: StressOperator
    value: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole configuration at one version."""

    version: int
    topics: Mapping[tuple[str, str], TopicRoute] = field(default_factory=dict)
    """By (namespace, name)."""
    groups: Mapping[tuple[str, str], GroupRoute] = field(default_factory=dict)
    """Subscriber groups by (namespace, name)."""
    publisher_groups: frozenset[tuple[str, str]] = frozenset()
    """(namespace, name)."""
    namespaces: frozenset[str] = frozenset({"default"})
    stress_rules: Mapping[str, tuple[StressRule, ...]] = field(default_factory=dict)
    """By namespace."""
    stress_whitelist: frozenset[tuple[int, int, str]] = frozenset()
    """(group_id, topic_id, event_code or `*`)."""
