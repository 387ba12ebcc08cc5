"""What the services give back: plain frozen data, cut loose from any session. The audit trail stores the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from confdb import models
from confdb.features import known_or_text
from confdb.route_rows import readable_offsets
from confdb.routes import GroupMode, GroupOrder, StressOperator, SubscriptionMode, TopicKind
from msgbroker.contract import limits

ThingT = TypeVar("ThingT")


@dataclass(frozen=True, slots=True)
class Changed(Generic[ThingT]):
    """What a change made (or, of a deletion, what is gone), and the version of the configuration that has it."""

    thing: ThingT
    version: int


@dataclass(frozen=True, slots=True)
class Page(Generic[ThingT]):
    """Some of a list. `next_after` asks for those that follow, if any; None: there are none."""

    items: tuple[ThingT, ...]
    next_after: str | int | None = None


def page_of(items: Iterable[ThingT], limit: int, key: Callable[[ThingT], str | int]) -> Page[ThingT]:
    """Return *items* as a page of *limit* at most: where it is full, more follow after the *key* of the last one."""
    page = tuple(items)
    return Page(page, key(page[-1]) if len(page) == limit else None)


@dataclass(frozen=True, slots=True)
class NamespaceView:
    """A namespace, as it is shown to people and programs."""

    namespace_id: int
    name: str
    description: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic, as it is shown to people and programs."""

    topic_id: int
    namespace: str
    name: str
    kind: TopicKind | str
    """Text where this version does not know it; so with the other choices."""
    queue_count: int
    generation: int
    body_bytes_max: int
    is_open: bool
    is_closed: bool
    stress_refused: bool
    description: str
    created_at: datetime
    requires: tuple[str, ...] = ()
    """What a broker must understand to serve it."""
    trace_rate: float = limits.TRACE_RATE_DEFAULT
    """The share of its messages of which all that happens is traced."""


@dataclass(frozen=True, slots=True)
class EventCodeView:
    """An event code of a topic, as it is shown to people and programs."""

    namespace: str
    topic: str
    name: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class PublisherGroupView:
    """A publisher group, as it is shown to people and programs."""

    publisher_group_id: int
    namespace: str
    name: str
    description: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class SubscriberGroupView:
    """A subscriber group, as it is shown to people and programs."""

    group_id: int
    namespace: str
    name: str
    ack_timeout_seconds: float
    handle_seconds_max: float
    retry_schedule_seconds: tuple[float, ...]
    attempts_max: int
    unsettled_max: int
    order: GroupOrder | str
    mode: GroupMode | str
    paused: bool
    description: str
    created_at: datetime
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SubscriptionView:
    """A subscription, as it is shown to people and programs."""

    subscription_id: int
    namespace: str
    group: str
    topic: str
    event_code: str
    mode: SubscriptionMode | str
    expression: str | None
    start_offsets: dict[int, int]
    created_at: datetime
    requires: tuple[str, ...] = ()
    paused: bool = False


@dataclass(frozen=True, slots=True)
class StressRuleView:
    """A rule that marks stress messages, as it is shown to people and programs."""

    stress_rule_id: int
    namespace: str
    header: str
    operator: StressOperator | str
    value: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class WhitelistView:
    """A group that may be handed stress messages of a message type."""

    stress_whitelist_id: int
    namespace: str
    group: str
    topic: str
    event_code: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class AuditView:
    """One entry of the audit trail: a change that was made."""

    audit_id: int
    at: datetime
    actor: str
    action: str
    kind: str
    namespace: str
    name: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    config_version: int
    reason: str
    """Empty where nobody said why."""


View = (
    NamespaceView
    | TopicView
    | EventCodeView
    | PublisherGroupView
    | SubscriberGroupView
    | SubscriptionView
    | StressRuleView
    | WhitelistView
)


def as_json(view: View) -> dict[str, Any]:
    """Return *view* as the audit trail keeps it."""
    return {name: _storable(value) for name, value in asdict(view).items()}


def _storable(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple):
        return [_storable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        # Somebody's own hand; JSON has no word for it.
        return str(value)
    return value


def _requires(row: models.Topic | models.SubscriberGroup | models.Subscription) -> tuple[str, ...]:
    return tuple(map(str, row.requires))


def namespace_view(row: models.Namespace) -> NamespaceView:
    """Return the view of a namespace."""
    return NamespaceView(
        namespace_id=row.namespace_id, name=row.name, description=row.description, created_at=row.created_at
    )


def topic_view(namespace: str, row: models.Topic) -> TopicView:
    """Return the view of a topic."""
    return TopicView(
        topic_id=row.topic_id,
        namespace=namespace,
        name=row.name,
        kind=known_or_text(TopicKind, row.kind),
        queue_count=row.queue_count,
        generation=row.generation,
        body_bytes_max=row.body_bytes_max,
        is_open=row.is_open,
        is_closed=row.is_closed,
        stress_refused=row.stress_refused,
        description=row.description,
        created_at=row.created_at,
        requires=_requires(row),
        trace_rate=row.trace_rate,
    )


def event_code_view(namespace: str, topic: str, row: models.EventCode) -> EventCodeView:
    """Return the view of an event code."""
    return EventCodeView(namespace=namespace, topic=topic, name=row.name, created_at=row.created_at)


def publisher_group_view(namespace: str, row: models.PublisherGroup) -> PublisherGroupView:
    """Return the view of a publisher group."""
    return PublisherGroupView(
        publisher_group_id=row.publisher_group_id,
        namespace=namespace,
        name=row.name,
        description=row.description,
        created_at=row.created_at,
    )


def subscriber_group_view(namespace: str, row: models.SubscriberGroup) -> SubscriberGroupView:
    """Return the view of a subscriber group."""
    return SubscriberGroupView(
        group_id=row.group_id,
        namespace=namespace,
        name=row.name,
        ack_timeout_seconds=row.ack_timeout_seconds,
        handle_seconds_max=row.handle_seconds_max,
        retry_schedule_seconds=tuple(row.retry_schedule_seconds),
        attempts_max=row.attempts_max,
        unsettled_max=row.unsettled_max,
        order=known_or_text(GroupOrder, row.group_order),
        mode=known_or_text(GroupMode, row.mode),
        paused=row.paused,
        description=row.description,
        created_at=row.created_at,
        requires=_requires(row),
    )


def subscription_view(namespace: str, group: str, topic: str, row: models.Subscription) -> SubscriptionView:
    """Return the view of a subscription."""
    return SubscriptionView(
        subscription_id=row.subscription_id,
        namespace=namespace,
        group=group,
        topic=topic,
        event_code=row.event_code,
        mode=known_or_text(SubscriptionMode, row.mode),
        expression=row.expression,
        start_offsets=readable_offsets(row.start_offsets) or {},
        created_at=row.created_at,
        requires=_requires(row),
        paused=row.paused,
    )


def stress_rule_view(namespace: str, row: models.StressRule) -> StressRuleView:
    """Return the view of a stress rule."""
    return StressRuleView(
        stress_rule_id=row.stress_rule_id,
        namespace=namespace,
        header=row.header,
        operator=known_or_text(StressOperator, row.operator),
        value=row.value,
        created_at=row.created_at,
    )


def whitelist_view(namespace: str, group: str, topic: str, row: models.StressWhitelist) -> WhitelistView:
    """Return the view of a whitelist entry."""
    return WhitelistView(
        stress_whitelist_id=row.stress_whitelist_id,
        namespace=namespace,
        group=group,
        topic=topic,
        event_code=row.event_code,
        created_at=row.created_at,
    )


def audit_view(row: models.AuditEntry) -> AuditView:
    """Return the view of an audit entry."""
    return AuditView(
        audit_id=row.audit_id,
        at=row.at,
        actor=row.actor,
        action=row.action,
        kind=row.kind,
        namespace=row.namespace,
        name=row.name,
        before=row.before,
        after=row.after,
        config_version=row.config_version,
        reason=row.reason,
    )
