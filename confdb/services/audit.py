"""The audit trail: read only. Changes write it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession

from confdb.models import AuditEntry, Namespace
from confdb.services.checks import check_after, check_page_limit, check_text
from confdb.services.views import AuditView, Page, audit_view, page_of
from confdb.store import ConfigStore
from msgbroker.contract import limits
from msgbroker.contract.errors import NamespaceNotFoundError, ThingNotFoundError

_FILTER_CHARS_MAX: Final = 2 * limits.HEADERS_BYTES_MAX + 100
"""How long a name to look for may be: the longest in the trail is that of a stress rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedChanges:
    """Which changes somebody asks for; None: whatever it is."""

    namespace: str | None = None
    kinds: Collection[str] | None = None
    """The kinds of things, as the trail calls them."""
    name: str | None = None
    actor: str | None = None
    """What is part of who made them."""
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        for field in ("namespace", "name", "actor"):
            check_text(field, getattr(self, field) or "", _FILTER_CHARS_MAX)

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        """Return what holds of these changes."""
        found: list[sa.ColumnElement[bool]] = []
        if self.namespace is not None:
            found.append(AuditEntry.namespace == self.namespace)
        if self.kinds is not None:
            found.append(AuditEntry.kind.in_(self.kinds))
        if self.name is not None:
            found.append(AuditEntry.name == self.name)
        if self.actor is not None:
            found.append(AuditEntry.actor.contains(self.actor, autoescape=True))
        if self.since is not None:
            found.append(AuditEntry.at >= self.since)
        if self.until is not None:
            found.append(AuditEntry.at < self.until)
        return found


EVERY_CHANGE: Final = WantedChanges()


class Audit:
    """Reads the audit trail: who changed what, when, from what to what."""

    def __init__(self, store: ConfigStore) -> None:
        self._store = store

    async def list(
        self,
        wanted: WantedChanges = EVERY_CHANGE,
        *,
        after: int | None = None,
        limit: int = limits.PAGE_ITEMS_DEFAULT,
    ) -> Page[AuditView]:
        """Return the changes that are *wanted* before the one with the id *after*, the newest first.

        Raises NamespaceNotFoundError, ThingNotFoundError for a name that neither is registered nor was: of a misspelt
        one, "nothing was changed" would be believed.
        """
        found = sa.select(AuditEntry).where(*wanted.conditions())
        if after is not None:
            check_after(after)
            found = found.where(AuditEntry.audit_id < after)
        found = found.order_by(AuditEntry.audit_id.desc()).limit(check_page_limit(limit))
        async with self._store.transaction() as session:
            rows = (await session.scalars(found)).all()
            if not rows:
                await _check_known(session, wanted)
        return page_of(map(audit_view, rows), limit, attrgetter("audit_id"))

    async def version_with(self, namespace: str, things: Iterable[tuple[str, str]]) -> int:
        """Return the version from which on the configuration has all of *things*, each a kind and a name.

        Of one that was made anew, the last time counts; one that is not in the trail is taken for older than it.
        """
        creations = [
            sa.and_(AuditEntry.kind == kind, AuditEntry.name == name, AuditEntry.action == f"{kind}.create")
            for kind, name in things
        ]
        # By the index that has the history of one thing.
        newest = sa.select(sa.func.max(AuditEntry.config_version)).where(
            AuditEntry.namespace == namespace, sa.or_(sa.false(), *creations)
        )
        async with self._store.transaction() as session:
            return await session.scalar(newest) or 0


async def _check_known(session: AsyncSession, wanted: WantedChanges) -> None:
    if wanted.namespace is not None:
        registered = sa.select(Namespace.namespace_id).where(Namespace.name == wanted.namespace)
        was_there = WantedChanges(namespace=wanted.namespace)
        if await session.scalar(registered) is None and not await _is_any(session, was_there):
            raise NamespaceNotFoundError(wanted.namespace)
    if wanted.name is not None:
        by_name = WantedChanges(namespace=wanted.namespace, kinds=wanted.kinds, name=wanted.name)
        if not await _is_any(session, by_name):
            raise ThingNotFoundError("change of a thing named", wanted.name)


async def _is_any(session: AsyncSession, wanted: WantedChanges) -> bool:
    return await session.scalar(sa.select(AuditEntry.audit_id).where(*wanted.conditions()).limit(1)) is not None
