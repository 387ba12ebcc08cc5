"""What was deleted: topics and groups that are not registered any more, by the audit trail.

The message store keeps what it has of them by their ids, which are never used again; a thing that was made again by the
same name has another one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession

from confdb.models import AuditEntry
from confdb.store import ConfigStore

DELETIONS_MAX: Final = 10_000
"""So many deletions are looked at, the newest of them."""
EARLIER_MAX: Final = 1_000
"""So many groups that had a name, or some names, are known of, the newest of them."""
_TOPIC, _GROUP = "topic.delete", "subscriber_group.delete"


class DeletedThing(NamedTuple):
    """A topic or a group, as it was called when it was deleted."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class DeletedThings:
    """What was deleted since a time."""

    topics: Mapping[int, DeletedThing]
    groups: Mapping[int, DeletedThing]
    is_whole: bool
    """Whether that is all of it; else it is what was deleted last."""


class GroupDeletion(NamedTuple):
    """That a group was deleted."""

    name: str
    at: datetime
    actor: str
    reason: str
    """Empty where nobody said why."""
    created_at: datetime | None
    """When the group was made; None: nobody noted it."""


async def read_deleted(store: ConfigStore, since: datetime) -> DeletedThings:
    """Return which topics and groups were deleted since then, by their ids."""
    # By the index that has the history of one thing, of these kinds: people make changes, and scripts.
    wanted = (
        sa.select(
            AuditEntry.action,
            AuditEntry.namespace,
            AuditEntry.name,
            AuditEntry.before["topic_id"].astext.cast(sa.BigInteger),
            AuditEntry.before["group_id"].astext.cast(sa.BigInteger),
        )
        .where(AuditEntry.kind.in_(("topic", "subscriber_group")), AuditEntry.action.in_((_TOPIC, _GROUP)))
        .where(AuditEntry.at >= since)
        .order_by(AuditEntry.audit_id.desc())
        .limit(DELETIONS_MAX + 1)
    )
    async with store.snapshot_transaction() as connection, AsyncSession(connection) as session:
        rows = (await session.execute(wanted)).all()
    of_kind: dict[str, dict[int, DeletedThing]] = {_TOPIC: {}, _GROUP: {}}
    for action, namespace, name, topic_id, group_id in rows[:DELETIONS_MAX]:
        of_kind[action][topic_id if action == _TOPIC else group_id] = DeletedThing(namespace, name)
    return DeletedThings(of_kind[_TOPIC], of_kind[_GROUP], len(rows) <= DELETIONS_MAX)


async def read_earlier_groups(store: ConfigStore, namespace: str, name: str) -> tuple[list[int], bool]:
    """Return the groups that were deleted and had this name, by id, the newest first; and whether those are all."""
    # By the index that has the history of one thing.
    wanted = (
        sa.select(AuditEntry.before["group_id"].astext.cast(sa.BigInteger))
        .where(AuditEntry.kind == "subscriber_group", AuditEntry.namespace == namespace, AuditEntry.name == name)
        .where(AuditEntry.action == _GROUP)
        .order_by(AuditEntry.audit_id.desc())
        .limit(EARLIER_MAX + 1)
    )
    async with store.snapshot_transaction() as connection, AsyncSession(connection) as session:
        found = (await session.scalars(wanted)).all()
    return list(found[:EARLIER_MAX]), len(found) <= EARLIER_MAX


async def read_group_deletions(
    store: ConfigStore, namespace: str, names: Collection[str] | None
) -> dict[int, GroupDeletion]:
    """Return who deleted the groups that had these names, or any, and when, by the groups' ids: the newest thousand."""
    # By the index that has the history of one thing.
    wanted = (
        sa.select(AuditEntry)
        .where(AuditEntry.kind == "subscriber_group", AuditEntry.namespace == namespace, AuditEntry.action == _GROUP)
        .where(sa.true() if names is None else AuditEntry.name.in_(names))
        .order_by(AuditEntry.audit_id.desc())
        .limit(EARLIER_MAX)
    )
    async with store.snapshot_transaction() as connection, AsyncSession(connection) as session:
        entries = (await session.scalars(wanted)).all()
    groups = [(entry.before or {}, entry) for entry in entries]
    return {
        group["group_id"]: GroupDeletion(
            entry.name, entry.at, entry.actor, entry.reason, _time(group.get("created_at"))
        )
        for group, entry in groups
    }


def _time(kept: str | None) -> datetime | None:
    return None if kept is None else datetime.fromisoformat(kept)


async def was_topic(store: ConfigStore, namespace: str, name: str) -> bool:
    """Return whether a topic was deleted that had this name."""
    # By the index that has the history of one thing.
    wanted = (
        sa.select(AuditEntry.audit_id)
        .where(AuditEntry.kind == "topic", AuditEntry.namespace == namespace, AuditEntry.name == name)
        .where(AuditEntry.action == _TOPIC)
        .limit(1)
    )
    async with store.snapshot_transaction() as connection, AsyncSession(connection) as session:
        return await session.scalar(wanted) is not None
