"""What a broker routes by: the immutable, whole picture of the configuration at one version.

Plain frozen data, no SQLAlchemy: brokers, the engine's matcher and tests read it. `confdb.snapshot` loads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from msgbroker.contract import limits


class Headers(dict[str, str]):
    """A message's headers as predicates take them; remembers what the expression engine made of them."""

    prepared: Any = None
    """What the expression engine made of the headers: when many groups look at one message, they are converted once."""
    looks: int = 0


HeaderPredicate = Callable[[dict[str, str]], bool]
"""A compiled HEADER expression. Raises ExpressionFailedError where it fails on a message."""


class ExpressionFailedError(Exception):
    """A HEADER expression failed on a message, e.g. because a header that it reads is missing.

    Caught by the engine's `Matcher`, for which that is no match, and which counts it.
    """

    def __init__(self, expression: str, problem: str) -> None:
        super().__init__(f"{expression!r}: {problem}")
        self.expression = expression
        self.problem = problem


class TopicKind(StrEnum):
    """What a topic's messages may be: only NORMAL is carried out yet."""

    NORMAL = "NORMAL"
    ORDERED = "ORDERED"
    SCHEDULED = "SCHEDULED"
    TRANSACTIONAL = "TRANSACTIONAL"


class SubscriptionMode(StrEnum):
    """How a subscription selects: every message of its type (DIRECT), or those that satisfy its expression (HEADER)."""

    DIRECT = "DIRECT"
    HEADER = "HEADER"


class GroupOrder(StrEnum):
    """What order a subscriber group insists on: none, by ordering key, or of all its messages."""

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
class NotUnderstood:
    """Why a broker does not serve a thing of the configuration."""

    features: tuple[str, ...] = ()
    """The features that the thing requires, and that the broker does not understand."""
    problem: str = ""
    """What of the thing's row cannot be read here."""

    @property
    def detail(self) -> str:
        """Say it to people, in a line of bounded length."""
        shown = [feature[:_SHOWN_CHARS_MAX] for feature in self.features[:_SHOWN_FEATURES_MAX]]
        if len(self.features) > len(shown):
            shown.append(f"{len(self.features) - len(shown)} more")
        parts = [f"requires {', '.join(shown)}"] if shown else []
        if self.problem:
            parts.append(self.problem[:_SHOWN_PROBLEM_CHARS_MAX])
        return "; ".join(parts)


_SHOWN_FEATURES_MAX: Final = 3
_SHOWN_CHARS_MAX: Final = 64
_SHOWN_PROBLEM_CHARS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """A topic, as a broker works by it."""

    topic_id: int
    namespace: str
    name: str
    kind: TopicKind | str
    """Text where this version does not know it; so with the other choices."""
    queue_count: int
    generation: int
    """The generation of the queue layout: goes up when queue_count changes."""
    body_bytes_max: int
    is_open: bool
    """Whether unknown event codes register themselves."""
    is_closed: bool
    """Whether the topic takes no new messages."""
    stress_refused: bool
    """The kill switch: new stress messages are refused, stored ones settled."""
    event_codes: frozenset[str]
    requires: frozenset[str] = frozenset()
    """The features a broker must understand to serve it."""
    not_understood: NotUnderstood | None = None
    """Why this broker does not serve it."""
    trace_rate: float = limits.TRACE_RATE_DEFAULT
    """The share of its messages of which all that happens is traced."""


@dataclass(frozen=True, slots=True)
class SubscriptionRoute:
    """A subscription of a group to a message type."""

    subscription_id: int
    topic_id: int
    event_code: str
    """`*` is every event code of the topic."""
    mode: SubscriptionMode | str
    expression: str | None
    predicate: HeaderPredicate | None
    start_offsets: Mapping[int, int]
    """The offset the subscription starts at, by queue_id. A queue that is not named starts at 0: it is younger than the
    subscription."""
    requires: frozenset[str] = frozenset()
    """The features a broker must understand to serve the subscription."""
    not_understood: NotUnderstood | None = None
    """Why this broker serves nothing of the topic to the group."""
    cost: int = 0
    """What evaluating its expression can cost, in steps, by its structure."""
    paused: bool = False
    """Whether what it wants, and no other subscription of the group, waits until it goes on."""


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
    """How many messages one instance may hold unsettled."""
    order: GroupOrder | str
    mode: GroupMode | str
    paused: bool
    subscriptions: tuple[SubscriptionRoute, ...]
    handle_seconds_max: float = limits.HANDLE_SECONDS_DEFAULT
    """How long an instance may keep what it has begun, by extending its time to answer; 0: it cannot."""
    requires: frozenset[str] = frozenset()
    """The features a broker must understand to serve the group; its subscriptions have their own."""
    not_understood: NotUnderstood | None = None
    """Why this broker does not serve it; for its subscriptions, see there."""


@dataclass(frozen=True, slots=True)
class StressRule:
    """Marks a message as stress traffic when a header matches."""

    header: str
    operator: StressOperator
    value: str


@dataclass(frozen=True, slots=True)
class Unserved:
    """A thing of the configuration that this broker does not serve."""

    thing: str
    """What it is, and its name, for people."""
    why: NotUnderstood
    group_id: int | None = None
    """The group that it concerns, as far as it concerns no other; so with topic_id."""
    topic_id: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole configuration at one version."""

    version: int
    topics: Mapping[tuple[str, str], TopicRoute] = field(default_factory=dict)
    """The topics, by namespace and name."""
    groups: Mapping[tuple[str, str], GroupRoute] = field(default_factory=dict)
    """The subscriber groups, by namespace and name."""
    publisher_groups: frozenset[tuple[str, str]] = frozenset()
    """The publisher groups, each as its namespace and name."""
    namespaces: frozenset[str] = frozenset({"default"})
    stress_rules: Mapping[str, tuple[StressRule, ...]] = field(default_factory=dict)
    """The stress rules, by namespace."""
    stress_whitelist: frozenset[tuple[int, int, str]] = frozenset()
    """What may be handed out as stress traffic: group_id, topic_id, and event code or `*`."""
    withheld: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """The topics of which this broker serves a group nothing, by group_id, because something is not understood."""
    unknown_stress_headers: Mapping[str, Mapping[str, NotUnderstood]] = field(default_factory=dict)
    """The headers of stress rules that are not understood, by namespace: whether a message that has one is stress
    traffic cannot be told."""
    unserved: tuple[Unserved, ...] = ()
    """All that this broker does not understand."""


def requirements(group: GroupRoute, topics: Mapping[int, TopicRoute]) -> dict[int, frozenset[str]]:
    """Return what a broker must understand to serve *group*, for each of its topics (of *topics*, by id)."""
    required: dict[int, frozenset[str]] = {}
    for subscription in group.subscriptions:
        topic = topics.get(subscription.topic_id)
        if topic is None:
            continue
        known = required.get(topic.topic_id)
        if known is None:
            known = required[topic.topic_id] = group.requires | topic.requires
        if subscription.requires:
            required[topic.topic_id] = known | subscription.requires
    return required


def withheld_topics(group: GroupRoute, topics: Mapping[int, TopicRoute]) -> frozenset[int]:
    """Return the topics (of *topics*, by id) of which this broker serves *group* nothing."""
    return frozenset(
        subscription.topic_id
        for subscription in group.subscriptions
        if group.not_understood is not None
        or subscription.not_understood is not None
        or ((topic := topics.get(subscription.topic_id)) is not None and topic.not_understood is not None)
    )
