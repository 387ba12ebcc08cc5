"""Load the whole configuration as one immutable snapshot.

Reads Core rows, not ORM objects, in one transaction that sees one moment; puts them together in a thread, so that a
large configuration does not hold up the broker's event loop. All is read each time, and nothing depends on being told
what changed; but what comes out of the same rows as before is the same object as before, and costs nothing.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import InstrumentedAttribute

from confdb import features, route_rows, unserved
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
from confdb.routes import GroupRoute, Snapshot, TopicRoute, withheld_topics
from confdb.store import ConfigStore
from msgbroker.contract.errors import NotMigratedError

READ_VERSION: Final = sa.select(ConfigVersion.version)


def _joined(requires: InstrumentedAttribute[list[str]]) -> sa.ColumnElement[str | None]:
    # Whatever shape the array has. An element that is NULL or empty must not pass for one that is not there.
    return sa.case((sa.func.cardinality(requires) > 0, sa.func.array_to_string(requires, ",", "NULL")))


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
    Topic.trace_rate,
    _joined(Topic.requires),
)
_EVENT_CODES: Final = sa.select(EventCode.topic_id, sa.func.array_agg(EventCode.name)).group_by(EventCode.topic_id)
_PUBLISHER_GROUPS: Final = sa.select(PublisherGroup.namespace_id, PublisherGroup.name)
# What has a structure comes as text: it can be compared so, and seldom needs to be taken apart.
_SUBSCRIBER_GROUPS: Final = sa.select(
    SubscriberGroup.group_id,
    SubscriberGroup.namespace_id,
    SubscriberGroup.name,
    SubscriberGroup.ack_timeout_seconds,
    SubscriberGroup.handle_seconds_max,
    sa.cast(SubscriberGroup.retry_schedule_seconds, sa.Text),
    SubscriberGroup.attempts_max,
    SubscriberGroup.unsettled_max,
    SubscriberGroup.group_order,
    SubscriberGroup.mode,
    SubscriberGroup.paused,
    _joined(SubscriberGroup.requires),
)
_SUBSCRIPTIONS: Final = sa.select(
    Subscription.subscription_id,
    Subscription.group_id,
    Subscription.topic_id,
    Subscription.event_code,
    Subscription.mode,
    Subscription.expression,
    sa.cast(Subscription.start_offsets, sa.Text),
    _joined(Subscription.requires),
    Subscription.paused,
).order_by(Subscription.subscription_id)
_STRESS_RULES: Final = sa.select(StressRule.__table__).order_by(StressRule.stress_rule_id)
_STRESS_WHITELIST: Final = sa.select(StressWhitelist.group_id, StressWhitelist.topic_id, StressWhitelist.event_code)

_Row: TypeAlias = sa.Row[*tuple[Any, ...]]
_TopicParts: TypeAlias = tuple[str, tuple[Any, ...], frozenset[str]]
"""Namespace, row, event codes: all that a topic's route is made of."""
_GroupParts: TypeAlias = tuple[str, tuple[Any, ...], tuple[tuple[Any, ...], ...]]
"""Namespace, row, rows of subscriptions: all that a group's route is made of."""


@dataclass(frozen=True, slots=True)
class ConfigRows:
    """All that a snapshot is made of, as it was read."""

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

    def __init__(self, store: ConfigStore, understood: frozenset[str] | None = None) -> None:
        """Make a loader; *understood*: the features of whoever routes by what it loads, by default of this version."""
        self._store = store
        self.understood = features.UNDERSTOOD if understood is None else understood
        self._topics: dict[_TopicParts, TopicRoute] = {}
        self._groups: dict[_GroupParts, GroupRoute] = {}

    async def load(self) -> Snapshot:
        """Return the whole configuration as it is at one moment. Raises ConfigUnavailableError."""
        async with self._store.snapshot_transaction() as connection:
            rows = await read_rows(connection)
        return await self.assemble(rows)

    async def assemble(self, rows: ConfigRows) -> Snapshot:
        """Return what was read as a snapshot."""
        return await asyncio.to_thread(self._assembled, rows)

    def _assembled(self, rows: ConfigRows) -> Snapshot:
        understood = self.understood
        namespace_names: dict[int, str] = {row.namespace_id: row.name for row in rows.namespaces}
        self._topics = {
            parts: self._topics.get(parts) or route_rows.read_topic(*parts, understood)
            for parts in _topic_parts(rows, namespace_names)
        }
        self._groups = {
            parts: self._groups.get(parts) or route_rows.read_group(*parts, understood)
            for parts in _group_parts(rows, namespace_names)
        }
        topics = {topic.topic_id: topic for topic in self._topics.values()}
        groups = self._groups.values()
        group_ids = {group.group_id for group in groups}
        stress = route_rows.read_stress_rules(rows.stress_rules, namespace_names, understood)
        whitelist = frozenset((row.group_id, row.topic_id, row.event_code) for row in rows.stress_whitelist)
        withheld = ((group.group_id, withheld_topics(group, topics)) for group in groups)
        return Snapshot(
            version=rows.version,
            topics=MappingProxyType({(topic.namespace, topic.name): topic for topic in topics.values()}),
            groups=MappingProxyType({(group.namespace, group.name): group for group in groups}),
            publisher_groups=frozenset(
                (namespace_names.get(row.namespace_id, ""), row.name) for row in rows.publisher_groups
            ),
            namespaces=frozenset(namespace_names.values()),
            stress_rules=MappingProxyType(stress.rules),
            stress_whitelist=whitelist,
            withheld=MappingProxyType({group_id: topic_ids for group_id, topic_ids in withheld if topic_ids}),
            unknown_stress_headers=MappingProxyType(stress.unknown_headers),
            unserved=(
                *unserved.unserved_without_name("topic", (row.topic_id for row in rows.topics), topics),
                *unserved.unserved_without_name("group", (row.group_id for row in rows.subscriber_groups), group_ids),
                *unserved.unserved_of(topics, groups),
                *stress.unserved,
                *route_rows.unserved_of_whitelist(whitelist),
            ),
        )


async def read_rows(connection: AsyncConnection) -> ConfigRows:
    """Return all of the configuration, as the transaction of *connection* sees it."""

    async def rows_of(statement: sa.Select[*tuple[Any, ...]]) -> Sequence[_Row]:
        return (await connection.execute(statement)).all()

    return ConfigRows(
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


def _topic_parts(rows: ConfigRows, namespace_names: Mapping[int, str]) -> Iterable[_TopicParts]:
    event_codes = {topic_id: frozenset(names) for topic_id, names in rows.event_codes}
    no_event_codes: frozenset[str] = frozenset()
    for topic_id, namespace_id, name, *rest in rows.topics:
        namespace = namespace_names.get(namespace_id)
        if namespace is not None and name is not None:
            parts = (topic_id, namespace_id, name, *rest)
            yield namespace, parts, event_codes.get(topic_id, no_event_codes)


def _group_parts(rows: ConfigRows, namespace_names: Mapping[int, str]) -> Iterable[_GroupParts]:
    subscriptions: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows.subscriptions:
        subscriptions[row.group_id].append(tuple(row))
    for group_id, namespace_id, name, *rest in rows.subscriber_groups:
        namespace = namespace_names.get(namespace_id)
        if namespace is not None and name is not None:
            yield namespace, (group_id, namespace_id, name, *rest), tuple(subscriptions.get(group_id, ()))
