"""Versions of the configuration: each belongs to one configuration only, whatever is lost.

A promotion of a standby, or a restore to an earlier moment, may lose the last changes. If the next change got the
version of a lost one, brokers that have seen that one would take it for what they know already; and msgdb has queues
and cursors by the ids that the lost ones gave out. So where the database goes on with another timeline, versions and
ids skip further than anything can have been lost.
"""

from __future__ import annotations

import secrets
from typing import Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession

from confdb.models import Base, ConfigVersion
from confdb.timeline import TIMELINE, VERSIONS_SKIPPED
from msgbroker.contract.errors import NotMigratedError

_IDS_SKIPPED: Final = 100_000

# In a statement of its own, before any other: those after it see what the holder before us committed.
_LOCK: Final = sa.select(ConfigVersion.version, ConfigVersion.timeline, TIMELINE.label("now")).with_for_update()
_SET: Final = sa.update(ConfigVersion).values(
    version=sa.bindparam("next_version"), timeline=sa.bindparam("now"), changed_at=sa.func.now()
)
# A sequence does not log each of its numbers: it may have lost its end as well.
_SKIP_IDS: Final = sa.text(
    f"SELECT setval(s.name, nextval(s.name) + {_IDS_SKIPPED}) FROM unnest(:names ::regclass[]) AS s (name)"
)
_SEQUENCES: Final = tuple(
    f"{table.name}_{column.name}_seq"
    for table in Base.metadata.sorted_tables
    for column in table.columns
    if column.identity is not None
)


class Versions(NamedTuple):
    """The version of the configuration before a change, and the one that the change makes."""

    current: int
    next: int
    timeline: str


async def lock_versions(session: AsyncSession, *, is_undone: bool = False) -> Versions:
    """Keep others from changing anything until this transaction ends; return what the change counts from.

    *is_undone*: the transaction is rolled back. What it gave out is nobody's, and ids that are skipped would stay so.
    """
    row = (await session.execute(_LOCK)).one_or_none()
    if row is None:
        raise NotMigratedError("the configuration database")
    if row.timeline == row.now:
        return Versions(row.version, row.version + 1, row.now)
    if not is_undone:
        await session.execute(_SKIP_IDS, {"names": list(_SEQUENCES)})
    # Random as well: a standby that knew nothing of another's promotion counts on from the same version.
    return Versions(row.version, row.version + VERSIONS_SKIPPED + secrets.randbits(19), row.now)


async def set_version(session: AsyncSession, versions: Versions) -> None:
    """Make the next version the current one."""
    await session.execute(_SET, {"next_version": versions.next, "now": versions.timeline})
