"""Load the whole configuration as one immutable snapshot.

Reads Core rows, not ORM objects, in one transaction that sees one moment; puts them together in a thread, so that a
large configuration does not hold up the broker's event loop.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import sqlalchemy as sa
import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from confdb.expressions import compile_expression
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
_TOPICS: Final = sa.select(Topic.__table__)
_EVENT_CODES: Final = sa.select(EventCode.topic_id, sa.func.array_agg(EventCode.name)).group_by(EventCode.topic_id)
_PUBLISHER_GROUPS: Final = sa.select(PublisherGroup.namespace_id, PublisherGroup.name)
_SUBSCRIBER_GROUPS: Final = sa.select(SubscriberGroup.__table__)
_SUBSCRIPTIONS: Final = sa.select(Subscription.__table__).order_by(Subscription.subscription_id)
_STRESS_RULES: Final = sa.select(StressRule.__table__).order_by(StressRule.stress_rule_id)
_STRESS_WHITELIST: Final = sa.select(StressWhitelist.group_id, StressWhitelist.topic_id, StressWhitelist.event_code)

_Row: TypeAlias = sa.Row[*tuple[Any, ...]]


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
    async with store.snapshot_transaction() as connection:
        rows = await _read(connection)
    return await asyncio.to_thread(_assembled, rows)


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


def _assembled(rows: _Rows) -> Snapshot:
    namespace_names: dict[int, str] = {row.namespace_id: row.name for row in rows.namespaces}
    return Snapshot(
        version=rows.version,
        topics=MappingProxyType(_topics(rows, namespace_names)),
        groups=MappingProxyType(_groups(rows, namespace_names)),
        publisher_groups=frozenset((namespace_names[row.namespace_id], row.name) for row in rows.publisher_groups),
        namespaces=frozenset(namespace_names.values()),
        stress_rules=MappingProxyType(_stress_rules(rows, namespace_names)),
        stress_whitelist=frozenset((row.group_id, row.topic_id, row.event_code) for row in rows.stress_whitelist),
    )


def _topics(rows: _Rows, namespace_names: Mapping[int, str]) -> dict[tuple[str, str], TopicRoute]:
    event_codes = {topic_id: frozenset(names) for topic_id, names in rows.event_codes}
    no_event_codes: frozenset[str] = frozenset()
    topics = {}
    for row in rows.topics:
        namespace = namespace_names[row.namespace_id]
        topics[(namespace, row.name)] = TopicRoute(
            topic_id=row.topic_id,
            namespace=namespace,
            name=row.name,
            kind=TopicKind(row.kind),
            queue_count=row.queue_count,
            generation=row.generation,
            body_bytes_max=row.body_bytes_max,
            is_open=row.is_open,
            is_closed=row.is_closed,
            stress_refused=row.stress_refused,
            event_codes=event_codes.get(row.topic_id, no_event_codes),
        )
    return topics


def _groups(rows: _Rows, namespace_names: Mapping[int, str]) -> dict[tuple[str, str], GroupRoute]:
    subscriptions: defaultdict[int, list[SubscriptionRoute]] = defaultdict(list)
    for row in rows.subscriptions:
        subscriptions[row.group_id].append(_subscription(row))
    groups = {}
    for row in rows.subscriber_groups:
        namespace = namespace_names[row.namespace_id]
        groups[(namespace, row.name)] = GroupRoute(
            group_id=row.group_id,
            namespace=namespace,
            name=row.name,
            ack_timeout_seconds=row.ack_timeout_seconds,
            retry_schedule_seconds=tuple(row.retry_schedule_seconds),
            attempts_max=row.attempts_max,
            unsettled_max=row.unsettled_max,
            order=GroupOrder(row.group_order),
            mode=GroupMode(row.mode),
            paused=row.paused,
            subscriptions=tuple(subscriptions.get(row.group_id, ())),
        )
    return groups


def _subscription(row: _Row) -> SubscriptionRoute:
    return SubscriptionRoute(
        subscription_id=row.subscription_id,
        topic_id=row.topic_id,
        event_code=row.event_code,
        mode=SubscriptionMode(row.mode),
        expression=row.expression,
        predicate=None if row.expression is None else _predicate(row.subscription_id, row.expression),
        start_offsets=MappingProxyType({int(queue_id): offset for queue_id, offset in row.start_offsets.items()}),
    )


def _predicate(subscription_id: int, expression: str) -> HeaderPredicate:
    try:
        return compile_expression(expression)
    except InvalidExpressionError as error:
        # It compiled when it was registered: another version of the compiler, or another hand. One subscription that
        # does not match is better than a broker without a configuration.
        log.warning("snapshot.expression_refused", subscription_id=subscription_id, problem=error.message)
        return partial(_never_matches, expression, error.message)


def _never_matches(expression: str, problem: str, _headers: dict[str, str]) -> bool:
    raise ExpressionFailedError(expression, problem)


def _stress_rules(rows: _Rows, namespace_names: Mapping[int, str]) -> dict[str, tuple[StressRuleRoute, ...]]:
    rules: defaultdict[str, list[StressRuleRoute]] = defaultdict(list)
    for row in rows.stress_rules:
        rule = StressRuleRoute(header=row.header, operator=StressOperator(row.operator), value=row.value)
        rules[namespace_names[row.namespace_id]].append(rule)
    return {namespace: tuple(of_namespace) for namespace, of_namespace in rules.items()}
