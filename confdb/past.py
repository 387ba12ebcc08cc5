"""The configuration of then: what one topic's groups were at each moment since a time, by the audit trail.

It begins with what is registered now and takes back one change after the other, the newest first. So it needs no
entry of what was registered before the trail began, and is right for as far back as the trail is read. What somebody
changed by hand, past the services, is in none of it.

A change is noted with the time at which its transaction began. When brokers go by it is not written down: some
milliseconds later as a rule, and within UNCERTAIN_SECONDS for any broker that is not cut off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession

from confdb.models import AuditEntry, ConfigVersion, Namespace, StressWhitelist, SubscriberGroup, Subscription, Topic
from confdb.route_rows import readable_offsets
from confdb.shared_mapping import SharedMapping
from confdb.store import ConfigStore
from confdb.timeline import TIMELINE, VERSIONS_SKIPPED
from msgbroker.contract.errors import NamespaceNotFoundError

UNCERTAIN_SECONDS: Final = 10.0
"""How long after a change was noted some broker may still go by what was before. A change waits 5 s for its turn, a
broker asks for the newest version twice a second, and the two databases have clocks of their own."""
CHANGES_MAX: Final = 10_000
"""So many changes are taken back, of one topic's groups."""
_KINDS: Final = ("topic", "subscriber_group", "subscription", "stress_whitelist")


class PastTopic(NamedTuple):
    """A topic, as far as it decides who gets a message."""

    topic_id: int
    stress_refused: bool


class PastGroup(NamedTuple):
    """A subscriber group."""

    group_id: int
    name: str
    paused: bool
    created_at: datetime | None = None
    """None: nobody noted it."""


class PastSubscription(NamedTuple):
    """A subscription of a group, which is named, to the topic."""

    subscription_id: int
    group: str
    event_code: str
    mode: str
    expression: str | None
    start_offsets: Mapping[int, int]
    paused: bool


class ConfigChange(NamedTuple):
    """A change of the configuration, of which there may be several parts at once."""

    version: int
    at: datetime
    actor: str
    actions: tuple[str, ...]
    """What, and of which thing: `subscription.delete SG_POINTS TP_TRADE/EC_PAID`."""
    groups: frozenset[str] | None = None
    """The names of the groups that it concerns; None: it may concern all, as a change of the topic does."""
    reason: str = ""
    """Empty where nobody said why."""

    @property
    def by(self) -> str:
        """Say for people who made it, and why."""
        return f"{self.actor} ({self.reason})" if self.reason else self.actor


@dataclass(frozen=True, slots=True)
class ConfigMoment:
    """What was registered from one change to the next."""

    made_by: ConfigChange | None
    """The change that it began with; None: it was so from the first moment on that is known."""
    topic: PastTopic | None
    groups: SharedMapping[str, PastGroup]
    subscriptions: SharedMapping[int, PastSubscription]
    allowed: SharedMapping[int, tuple[str, str]]
    """The whitelist: group and event code, by its ids."""


@dataclass(frozen=True, slots=True)
class TopicPast:
    """All that was registered of one topic and its namespace's groups since a time."""

    moments: Sequence[ConfigMoment]
    """The oldest first; the last one is now."""
    is_whole: bool
    """Whether they reach back to that time; else there were more changes than are read."""
    read_at: datetime
    """By the configuration database's clock."""
    has_lost_changes: bool
    """Whether the configuration database has lost its end since then: brokers may have gone by what is in no trail."""


class Past:
    """Tells what the configuration was."""

    def __init__(self, store: ConfigStore) -> None:
        self._store = store

    async def of_topic(
        self, namespace: str, topic: str, since: datetime, *, changes_max: int = CHANGES_MAX
    ) -> TopicPast:
        """Return what was registered of a topic, and of all groups of its namespace, from *since* on until now.

        The topic need not be registered (any more). Raises NamespaceNotFoundError.
        """
        async with self._store.snapshot_transaction() as connection, AsyncSession(connection) as session:
            now = await _read_now(session, namespace, topic)
            entries = await _read_entries(session, namespace, topic, since, changes_max + 1)
            has_lost_changes = await _has_lost(session, since, [entry.config_version for entry in entries])
            read_at = (await session.execute(sa.select(sa.func.clock_timestamp()))).scalar_one()
        is_whole = len(entries) <= changes_max
        return TopicPast(moments_of(now, entries[:changes_max], topic), is_whole, read_at, has_lost_changes)


def moments_of(now: ConfigMoment, newest_first: Sequence[AuditEntry], topic: str) -> list[ConfigMoment]:
    """Take back these changes, one version after the other, and return what was in between. Pure."""
    by_version: dict[int, list[AuditEntry]] = {}
    for entry in newest_first:
        by_version.setdefault(entry.config_version, []).append(entry)
    moments: list[ConfigMoment] = []
    moment = now
    for version in sorted(by_version, reverse=True):
        entries = by_version[version]
        actions = tuple(f"{entry.action} {entry.name}" for entry in reversed(entries))
        last = entries[-1]
        change = ConfigChange(version, last.at, last.actor, actions, _groups_of(entries), last.reason)
        moments.append(replace(moment, made_by=change))
        for entry in entries:
            moment = _taken_back(moment, entry, topic)
    moments.append(replace(moment, made_by=None))
    return moments[::-1]


async def _read_now(session: AsyncSession, namespace: str, topic: str) -> ConfigMoment:
    namespace_id = await session.scalar(sa.select(Namespace.namespace_id).where(Namespace.name == namespace))
    if namespace_id is None:
        raise NamespaceNotFoundError(namespace)
    found = await session.scalar(sa.select(Topic).where(Topic.namespace_id == namespace_id, Topic.name == topic))
    rows = await session.scalars(sa.select(SubscriberGroup).where(SubscriberGroup.namespace_id == namespace_id))
    groups = {row.group_id: PastGroup(row.group_id, row.name, row.paused, row.created_at) for row in rows}
    subscriptions: Iterable[Subscription] = ()
    allowed: Iterable[StressWhitelist] = ()
    if found is not None:
        subscriptions = await session.scalars(sa.select(Subscription).where(Subscription.topic_id == found.topic_id))
        of_topic = StressWhitelist.topic_id == found.topic_id
        allowed = await session.scalars(sa.select(StressWhitelist).where(of_topic))
    return ConfigMoment(
        made_by=None,
        topic=None if found is None else PastTopic(found.topic_id, found.stress_refused),
        groups=SharedMapping({group.name: group for group in groups.values()}),
        subscriptions=SharedMapping(
            {
                row.subscription_id: PastSubscription(
                    row.subscription_id,
                    groups[row.group_id].name,
                    row.event_code,
                    row.mode,
                    row.expression,
                    readable_offsets(row.start_offsets) or {},
                    row.paused,
                )
                for row in subscriptions
            }
        ),
        allowed=SharedMapping(
            {row.stress_whitelist_id: (groups[row.group_id].name, row.event_code) for row in allowed}
        ),
    )


async def _read_entries(
    session: AsyncSession, namespace: str, topic: str, since: datetime, limit: int
) -> Sequence[AuditEntry]:
    # By the beginning of the index that has the history of one thing. Changes are made by people, and by scripts.
    thing = sa.func.coalesce(AuditEntry.after, AuditEntry.before)
    is_of_topic = sa.or_(
        AuditEntry.kind == "subscriber_group",
        sa.and_(AuditEntry.kind == "topic", AuditEntry.name == topic),
        sa.and_(AuditEntry.kind.in_(("subscription", "stress_whitelist")), thing["topic"].astext == topic),
    )
    wanted = sa.select(AuditEntry).where(
        AuditEntry.kind.in_(_KINDS), AuditEntry.namespace == namespace, AuditEntry.at > since, is_of_topic
    )
    return (await session.scalars(wanted.order_by(AuditEntry.audit_id.desc()).limit(limit))).all()


async def _has_lost(session: AsyncSession, since: datetime, newest_first: Sequence[int]) -> bool:
    """Return whether versions skip between two changes since then, or the next change will skip."""
    now = (await session.execute(sa.select(ConfigVersion.version, ConfigVersion.timeline, TIMELINE))).one()
    if now.timeline is not None and now.timeline != now[2]:
        return True
    # By the primary key, backwards, over what was changed since.
    before = sa.select(AuditEntry.config_version).where(AuditEntry.at <= since).order_by(AuditEntry.audit_id.desc())
    first = await session.scalar(before.limit(1))
    versions = [now.version, *newest_first, *([] if first is None else [first])]
    return any(later - earlier >= VERSIONS_SKIPPED for later, earlier in pairwise(versions))


def _taken_back(moment: ConfigMoment, entry: AuditEntry, topic: str) -> ConfigMoment:
    """Return what was registered before a change."""
    before, thing = entry.before, entry.before or entry.after or {}
    if entry.kind == "topic":
        kept = None if before is None else PastTopic(before["topic_id"], before["stress_refused"])
        return replace(moment, topic=kept) if entry.name == topic else moment
    if entry.kind == "subscriber_group":
        group = None if before is None else _group_of(before)
        return replace(moment, groups=moment.groups.changed(thing["name"], group))
    if entry.kind == "subscription":
        subscription = None if before is None else _subscription_of(before)
        return replace(moment, subscriptions=moment.subscriptions.changed(thing["subscription_id"], subscription))
    allowed = None if before is None else (before["group"], before["event_code"])
    return replace(moment, allowed=moment.allowed.changed(thing["stress_whitelist_id"], allowed))


def _groups_of(entries: Iterable[AuditEntry]) -> frozenset[str] | None:
    names: set[str] = set()
    for entry in entries:
        if entry.kind == "topic":
            return None
        thing = entry.before or entry.after or {}
        names.add(thing["name" if entry.kind == "subscriber_group" else "group"])
    return frozenset(names)


def _group_of(kept: Mapping[str, Any]) -> PastGroup:
    created_at = kept.get("created_at")
    at = None if created_at is None else datetime.fromisoformat(created_at)
    return PastGroup(kept["group_id"], kept["name"], kept["paused"], at)


def _subscription_of(kept: Mapping[str, Any]) -> PastSubscription:
    return PastSubscription(
        kept["subscription_id"],
        kept["group"],
        kept["event_code"],
        kept["mode"],
        kept["expression"],
        readable_offsets(kept["start_offsets"]) or {},
        # Entries of earlier versions do not say.
        kept.get("paused", False),
    )
