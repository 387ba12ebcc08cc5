"""The audit trail: read only. Changes write it."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

import sqlalchemy as sa

from confdb.models import AuditEntry
from confdb.services.checks import check_after, check_page_limit, check_text
from confdb.services.views import AuditView, Page, audit_view, page_of
from confdb.store import ConfigStore
from msgbroker.contract import limits

_FILTER_CHARS_MAX: Final = 2 * limits.HEADERS_BYTES_MAX + 100
"""How long a name to look for may be: the longest in the trail is that of a stress rule."""


class Audit:
    """Reads the audit trail: who changed what, when, from what to what."""

    def __init__(self, store: ConfigStore) -> None:
        self._store = store

    async def list(
        self,
        *,
        namespace: str | None = None,
        kind: str | None = None,
        name: str | None = None,
        after: int | None = None,
        limit: int = limits.PAGE_ITEMS_DEFAULT,
    ) -> Page[AuditView]:
        """Return the changes before the one with the id *after*, the newest first; of one thing, if given."""
        wanted = sa.select(AuditEntry).order_by(AuditEntry.audit_id.desc()).limit(check_page_limit(limit))
        if after is not None:
            check_after(after)
            wanted = wanted.where(AuditEntry.audit_id < after)
        for field, value in (("namespace", namespace), ("kind", kind), ("name", name)):
            check_text(field, value or "", _FILTER_CHARS_MAX)
        filters = ((AuditEntry.namespace, namespace), (AuditEntry.kind, kind), (AuditEntry.name, name))
        wanted = wanted.where(*(column == value for column, value in filters if value is not None))
        async with self._store.transaction() as session:
            rows = (await session.scalars(wanted)).all()
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
