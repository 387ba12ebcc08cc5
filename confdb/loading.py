"""Load the whole configuration as one immutable snapshot.

Reads Core rows, not ORM objects, in one transaction that sees one moment; puts them together in a thread, so that a
large configuration does not hold up the broker's event loop. All is read each time, and nothing depends on being told
what changed; but what comes out of the same rows as before is the same object as before, and costs nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import sqlalchemy as sa
import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from confdb.expressions import compile_expression, cost_of_expression
from confdb.models import (
    ConfigVersion,
    EventCode,
    Namespace,
    PublisherGroup,
    StressRule,
    StressWhitelist,
    SubscriberGroup,
    Subscription,
    Topic,
)
from confdb.routes import (
    ExpressionFailedError,
    GroupMode,
    GroupOrder,
    GroupRoute,
    HeaderPredicate,
    Snapshot,
    StressOperator,
    SubscriptionMode,
    SubscriptionRoute,
    TopicKind,
    TopicRoute,
)
from confdb.routes import StressRule as StressRuleRoute
from confdb.store import ConfigStore
from msgbroker.contract.errors import InvalidExpressionError, NotMigratedError

log = structlog.get_logger(__name__)

READ_VERSION: Final = sa.select(ConfigVersion.version)

# Whole tables, each read once: no index could help. Event codes are put together by the database, in which they are
# by far the most rows.
_NAMESPACES: Final = sa.select(Namespace.namespace_id, Namespace.name)
_TOPICS: Final = sa.select(
    Topic.topic_id,
    Topic.namespace_id,
    Topic.name,
    Topic.kind,
    Topic.queue_count,
    Topic.generation,
    Topic.body_bytes_max,
    Topic.is_open,
    Topic.is_closed,
    Topic.stress_refused,
)
_EVENT_CODES: Final = sa.select(EventCode.topic_id, sa.func.array_agg(EventCode.name)).group_by(EventCode.topic_id)
_PUBLISHER_GROUPS: Final = sa.select(PublisherGroup.namespace_id, PublisherGroup.name)
# What has a structure comes as text: it can be compared so, and seldom needs to be taken apart.
_SUBSCRIBER_GROUPS: Final = sa.select(
    SubscriberGroup.group_id,
    SubscriberGroup.namespace_id,
    SubscriberGroup.name,
    SubscriberGroup.ack_timeout_seconds,
    sa.cast(SubscriberGroup.retry_schedule_seconds, sa.Text),
    SubscriberGroup.attempts_max,
    SubscriberGroup.unsettled_max,
    SubscriberGroup.group_order,
    SubscriberGroup.mode,
    SubscriberGroup.paused,
)
_SUBSCRIPTIONS: Final = sa.select(
    Subscription.subscription_id,
    Subscription.group_id,
    Subscription.topic_id,
    Subscription.event_code,
    Subscription.mode,
    Subscription.expression,
    sa.cast(Subscription.start_offsets, sa.Text),
).order_by(Subscription.subscription_id)
_STRESS_RULES: Final = sa.select(StressRule.__table__).order_by(StressRule.stress_rule_id)
_STRESS_WHITELIST: Final = sa.select(StressWhitelist.group_id, StressWhitelist.topic_id, StressWhitelist.event_code)

_Row: TypeAlias = sa.Row[*tuple[Any, ...]]
_TopicParts: TypeAlias = tuple[str, tuple[Any, ...], frozenset[str]]
"""Namespace, row, event codes: all that a topic's route is made of."""
_GroupParts: TypeAlias = tuple[str, tuple[Any, ...], tuple[tuple[Any, ...], ...]]
"""Namespace, row, rows of subscriptions: all that a group's route is made of."""


@dataclass(frozen=True, slots=True)
class _Rows:
    version: int
    namespaces: Sequence[_Row]
    topics: Sequence[_Row]
    event_codes: Sequence[_Row]
    publisher_groups: Sequence[_Row]
    subscriber_groups: Sequence[_Row]
    subscriptions: Sequence[_Row]
    stress_rules: Sequence[_Row]
    stress_whitelist: Sequence[_Row]


async def read_version(store: ConfigStore) -> int:
    """Return the version of the configuration."""
    async with store.single_statement() as connection:
        return _version((await connection.execute(READ_VERSION)).scalar_one_or_none())


async def load_snapshot(store: ConfigStore) -> Snapshot:
    """Return the whole configuration as it is at one moment."""
    return await SnapshotLoader(store).load()


class SnapshotLoader:
    """Loads snapshot after snapshot, each whole: what has not changed is shared between them. One load at a time."""

    def __init__(self, store: ConfigStore) -> None:
        self._store = store
        self._topics: dict[_TopicParts, TopicRoute] = {}
        self._groups: dict[_GroupParts, GroupRoute] = {}

    async def load(self) -> Snapshot:
        """Return the whole configuration as it is at one moment. Raises ConfigUnavailableError."""
        async with self._store.snapshot_transaction() as connection:
            rows = await _read(connection)
        return await asyncio.to_thread(self._assembled, rows)

    def _assembled(self, rows: _Rows) -> Snapshot:
        namespace_names: dict[int, str] = {row.namespace_id: row.name for row in rows.namespaces}
        self._topics = {
            parts: self._topics.get(parts) or _topic(*parts) for parts in _topic_parts(rows, namespace_names)
        }
        self._groups = {
            parts: self._groups.get(parts) or _group(*parts) for parts in _group_parts(rows, namespace_names)
        }
        return Snapshot(
            version=rows.version,
            topics=MappingProxyType({(topic.namespace, topic.name): topic for topic in self._topics.values()}),
            groups=MappingProxyType({(group.namespace, group.name): group for group in self._groups.values()}),
            publisher_groups=frozenset((namespace_names[row.namespace_id], row.name) for row in rows.publisher_groups),
            namespaces=frozenset(namespace_names.values()),
            stress_rules=MappingProxyType(_stress_rules(rows, namespace_names)),
            stress_whitelist=frozenset((row.group_id, row.topic_id, row.event_code) for row in rows.stress_whitelist),
        )


async def _read(connection: AsyncConnection) -> _Rows:
    async def rows_of(statement: sa.Select[*tuple[Any, ...]]) -> Sequence[_Row]:
        return (await connection.execute(statement)).all()

    return _Rows(
        version=_version((await connection.execute(READ_VERSION)).scalar_one_or_none()),
        namespaces=await rows_of(_NAMESPACES),
        topics=await rows_of(_TOPICS),
        event_codes=await rows_of(_EVENT_CODES),
        publisher_groups=await rows_of(_PUBLISHER_GROUPS),
        subscriber_groups=await rows_of(_SUBSCRIBER_GROUPS),
        subscriptions=await rows_of(_SUBSCRIPTIONS),
        stress_rules=await rows_of(_STRESS_RULES),
        stress_whitelist=await rows_of(_STRESS_WHITELIST),
    )


def _version(version: int | None) -> int:
    if version is None:
        raise NotMigratedError("the configuration database")
    return version


def _topic_parts(rows: _Rows, namespace_names: Mapping[int, str]) -> Iterable[_TopicParts]:
    event_codes = {topic_id: frozenset(names) for topic_id, names in rows.event_codes}
    no_event_codes: frozenset[str] = frozenset()
    for row in rows.topics:
        yield namespace_names[row.namespace_id], tuple(row), event_codes.get(row.topic_id, no_event_codes)


def _topic(namespace: str, row: tuple[Any, ...], event_codes: frozenset[str]) -> TopicRoute:
    topic_id, _, name, kind, queue_count, generation, body_bytes_max, is_open, is_closed, stress_refused = row
    return TopicRoute(
        topic_id=topic_id,
        namespace=namespace,
        name=name,
        kind=TopicKind(kind),
        queue_count=queue_count,
        generation=generation,
        body_bytes_max=body_bytes_max,
        is_open=is_open,
        is_closed=is_closed,
        stress_refused=stress_refused,
        event_codes=event_codes,
    )


def _group_parts(rows: _Rows, namespace_names: Mapping[int, str]) -> Iterable[_GroupParts]:
    subscriptions: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows.subscriptions:
        subscriptions[row.group_id].append(tuple(row))
    for row in rows.subscriber_groups:
        yield namespace_names[row.namespace_id], tuple(row), tuple(subscriptions.get(row.group_id, ()))


def _group(namespace: str, row: tuple[Any, ...], subscriptions: tuple[tuple[Any, ...], ...]) -> GroupRoute:
    group_id, _, name, ack_timeout_seconds, retry_schedule, attempts_max, unsettled_max, order, mode, paused = row
    return GroupRoute(
        group_id=group_id,
        namespace=namespace,
        name=name,
        ack_timeout_seconds=ack_timeout_seconds,
        retry_schedule_seconds=tuple(float(seconds) for seconds in retry_schedule.strip("{}").split(",") if seconds),
        attempts_max=attempts_max,
        unsettled_max=unsettled_max,
        order=GroupOrder(order),
        mode=GroupMode(mode),
        paused=paused,
        subscriptions=tuple(_subscription(*subscription) for subscription in subscriptions),
    )


def _subscription(
    subscription_id: int,
    _group_id: int,
    topic_id: int,
    event_code: str,
    mode: str,
    expression: str | None,
    start_offsets: str,
) -> SubscriptionRoute:
    offsets: dict[str, int] = json.loads(start_offsets)
    predicate, cost = (None, 0) if expression is None else _predicate(subscription_id, expression)
    return SubscriptionRoute(
        subscription_id=subscription_id,
        topic_id=topic_id,
        event_code=event_code,
        mode=SubscriptionMode(mode),
        expression=expression,
        predicate=predicate,
        start_offsets=MappingProxyType({int(queue_id): offset for queue_id, offset in offsets.items()}),
        cost=cost,
    )


def _predicate(subscription_id: int, expression: str) -> tuple[HeaderPredicate, int]:
    """Return what the expression compiles to, and its cost: no limit applies to what is registered."""
    try:
        return compile_expression(expression), cost_of_expression(expression).steps
    except InvalidExpressionError as error:
        # It compiled when it was registered: another version of the compiler, or another hand. One subscription that
        # does not match is better than a broker without a configuration.
        log.warning("snapshot.expression_refused", subscription_id=subscription_id, problem=error.message)
        return partial(_never_matches, expression, error.message), 0


def _never_matches(expression: str, problem: str, _headers: dict[str, str]) -> bool:
    raise ExpressionFailedError(expression, problem)


def _stress_rules(rows: _Rows, namespace_names: Mapping[int, str]) -> dict[str, tuple[StressRuleRoute, ...]]:
    rules: defaultdict[str, list[StressRuleRoute]] = defaultdict(list)
    for row in rows.stress_rules:
        rule = StressRuleRoute(header=row.header, operator=StressOperator(row.operator), value=row.value)
        rules[namespace_names[row.namespace_id]].append(rule)
    return {namespace: tuple(of_namespace) for namespace, of_namespace in rules.items()}
