"""Requiring the archive before days are dropped: confdb says whether every broker understands it, msgdb keeps it."""

from __future__ import annotations

from datetime import date

from confdb.features import Feature
from msgconsole.operations.stores import Stores
from msgdb.archive import policy
from msgdb.archive.day_rows import get_archivable
from msgdb.archive.permits import hold_days, release_days
from msgdb.archive.policy import Policy
from msgdb.archive.stored_days import list_stored_days
from msgdb.log.partitions import today
from msgdb.postgres.connections import Connection


async def require_archive(stores: Stores, *, table: str, actor: str, reason: str, include_past: bool = False) -> Policy:
    """Let days of *table* from today on be dropped only once they are archived; with *include_past* all that are there.

    Refused while a broker is running that would drop them without: one that starts later is stopped by the store.
    Raises FeatureNotEverywhereError with the brokers, and InvalidSettingError for a table that is not archived.
    """
    day_table = get_archivable(table)
    await stores.service(actor).check_everywhere(Feature.ARCHIVE)
    async with stores.messages.transaction() as conn:
        from_day = await _find_first_day(conn, table) if include_past else None
        required = await policy.require(conn, table, actor=actor, reason=reason, from_day=from_day)
        await hold_days(conn, day_table)
        return required


async def stop_requiring_archive(stores: Stores, *, table: str, actor: str, reason: str) -> bool:
    """Let days of *table* go as they are; return whether their archive was required."""
    async with stores.messages.transaction() as conn:
        is_stopped = await policy.stop_requiring(conn, table, actor=actor, reason=reason)
        # After it: a broker that was asking for a day, and held it, has ended by then.
        await release_days(conn, get_archivable(table))
        return is_stopped


async def _find_first_day(conn: Connection, table: str) -> date | None:
    """Return the first day of *table* that is there; None: there is none before today."""
    stored = await list_stored_days(conn, get_archivable(table), await today(conn))
    return stored[0].day if stored else None
