"""One change of the configuration: the change, its audit rows and the new version are one transaction.

The row lock on the version puts all changes in one order, so that a check made inside a change still holds when it
commits, and so that who has read version n has everything up to n.

A change may be rehearsed: it goes the very way of one that is made, with every check on it, and is undone at its end.
What it would have made of the configuration is read before that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from confdb.loading import ConfigRows, SnapshotLoader, read_rows
from confdb.models import CONFIG_CHANNEL, AuditEntry, Base
from confdb.routes import Snapshot
from confdb.services.checks import check_text
from confdb.services.versions import Versions, lock_versions, set_version
from confdb.services.views import View, as_json
from confdb.store import ConfigStore, constraint_of
from msgbroker.contract import limits
from msgbroker.contract.errors import InvalidSettingError, MessageCenterError

# Whoever changes something may freeze in the middle of it, and must not hold up the others for long. One statement,
# SET LOCAL in effect: it ends with the transaction, also behind a transaction pooler.
_BOUND_WAITS: Final = sa.text(
    "SELECT set_config('lock_timeout', '5s', true), set_config('idle_in_transaction_session_timeout', '10s', true),"
    # What an operator was told is changed must not come back with a failover: a group off the whitelist, say.
    " set_config('synchronous_commit', 'on', true)"
)
_NOTIFY: Final = sa.text("SELECT pg_notify(:channel, :version)")

_NO_REFUSALS: Final[Mapping[str, MessageCenterError]] = MappingProxyType({})


class Author(NamedTuple):
    """Who changes something, and why; the reason is empty where nobody said it."""

    actor: str
    reason: str


@dataclass(frozen=True, slots=True)
class ThingChange:
    """What would become of one thing; None before: it would be created, after: deleted."""

    kind: str
    namespace: str
    name: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """The configuration as it is, and as it would be."""

    before: Snapshot
    after: Snapshot
    things: tuple[ThingChange, ...]
    """What the audit trail would say; nothing: all is so already."""


class Change:
    """A change under way. `record` says what it did; without a record it leaves the version as it is."""

    def __init__(self, session: AsyncSession, author: Author, versions: Versions) -> None:
        self.session = session
        self._author = author
        self._versions = versions
        self._entries: list[AuditEntry] = []

    @property
    def version(self) -> int:
        """The version of the configuration once this has committed."""
        return self._versions.next if self._entries else self._versions.current

    async def add(self, row: Base) -> None:
        """Insert *row*, and read what the database filled in."""
        self.session.add(row)
        await self.session.flush()

    async def remove(self, *rows: Base) -> None:
        """Delete *rows* now, so that what they refer to can be deleted next."""
        for row in rows:
            await self.session.delete(row)
        await self.session.flush()

    def record(self, kind: str, namespace: str, name: str, *, before: View | None, after: View | None) -> None:
        """Note for the audit trail what became of a thing: created (no before), deleted (no after) or updated."""
        if before == after:
            return
        verb = "create" if before is None else "delete" if after is None else "update"
        entry = AuditEntry(
            actor=self._author.actor,
            reason=self._author.reason,
            action=f"{kind}.{verb}",
            kind=kind,
            namespace=namespace,
            name=name,
            before=_json(before),
            after=_json(after),
            config_version=self._versions.next,
        )
        self._entries.append(entry)

    async def rows(self) -> ConfigRows:
        """Return the whole configuration as this change sees it: nobody else changes anything meanwhile."""
        return await read_rows(await self.session.connection())

    def things(self) -> tuple[ThingChange, ...]:
        """Return what became of each thing by now."""
        return tuple(
            ThingChange(entry.kind, entry.namespace, entry.name, entry.before, entry.after) for entry in self._entries
        )

    async def finish(self) -> None:
        """Write the audit rows and the version, and tell the brokers at commit."""
        if not self._entries:
            return
        self.session.add_all(self._entries)
        await self.session.flush()
        await set_version(self.session, self._versions)
        await self.session.execute(_NOTIFY, {"channel": CONFIG_CHANNEL, "version": str(self.version)})


class Rehearsal:
    """Takes down what changes would make of the configuration, and has each of them undone."""

    def __init__(self, store: ConfigStore) -> None:
        self._loader = SnapshotLoader(store)
        self._last: tuple[ConfigRows, ConfigRows, Sequence[ThingChange]] | None = None

    async def take_down(self, before: ConfigRows, change: Change) -> None:
        """Remember what *change* has made of the configuration, and undo it."""
        # To its very end: who may not write the audit trail is refused here, too. A NOTIFY goes with a commit alone.
        await change.finish()
        await change.session.flush()
        self._last = before, await change.rows(), change.things()
        await change.session.rollback()

    async def told(self) -> Rehearsed:
        """Return what the last change would have made."""
        assert self._last is not None, "nothing was rehearsed"
        before, after, things = self._last
        # What is in both snapshots is the same object in both.
        return Rehearsed(await self._loader.assemble(before), await self._loader.assemble(after), tuple(things))


class Changes:
    """Begins changes on behalf of one actor; with a *rehearsal* none of them is kept."""

    def __init__(self, store: ConfigStore, actor: str, reason: str = "", *, rehearsal: Rehearsal | None = None) -> None:
        if not actor:
            raise InvalidSettingError("actor", "is empty: the audit trail must name who changes something")
        self._store = store
        self._rehearsal = rehearsal
        self._author = Author(
            check_text("actor", actor, limits.ACTOR_CHARS_MAX),
            check_text("reason", reason.strip(), limits.REASON_CHARS_MAX),
        )

    @asynccontextmanager
    async def begin(self, refusals: Mapping[str, MessageCenterError] = _NO_REFUSALS) -> AsyncIterator[Change]:
        """Give a change that commits at the end. *refusals*: what to raise when a constraint of that name is hit."""
        try:
            async with self._store.transaction() as session:
                await session.execute(_BOUND_WAITS)
                versions = await lock_versions(session, is_undone=self._rehearsal is not None)
                change = Change(session, self._author, versions)
                if self._rehearsal is None:
                    yield change
                    await change.finish()
                else:
                    before = await change.rows()
                    yield change
                    await self._rehearsal.take_down(before, change)
        except IntegrityError as error:
            refusal = refusals.get(constraint_of(error) or "")
            if refusal is None:
                raise
            raise refusal from error


def _json(view: View | None) -> dict[str, Any] | None:
    return None if view is None else as_json(view)
