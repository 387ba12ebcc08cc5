"""What must be archived before it is dropped: a row for each table that this holds for, and from which day on.

Whether every live broker understands it is asked by whoever requires it (the brokers are listed in confdb). One of an
earlier version that starts later is stopped by the database itself: see the trigger `archive_guard_start`.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Final, NamedTuple

from msgdb.acts import write_act
from msgdb.archive.day_rows import get_archivable
from msgdb.log.partitions import today
from msgdb.postgres.connections import Connection

_COLUMNS: Final = "table_name, required_from, changed_at"

# One row for each table that may be archived: all of them fit on a page.
_LIST: Final = f"SELECT {_COLUMNS} FROM archive_policy ORDER BY table_name"
_FIND: Final = f"SELECT {_COLUMNS} FROM archive_policy WHERE table_name = %s"
_REQUIRE: Final = f"""
INSERT INTO archive_policy (table_name, required_from) VALUES (%(table)s, %(required_from)s)
ON CONFLICT (table_name) DO UPDATE
SET required_from = least(archive_policy.required_from, excluded.required_from), changed_at = clock_timestamp()
RETURNING {_COLUMNS}
"""
_STOP: Final = "DELETE FROM archive_policy WHERE table_name = %s"


class Policy(NamedTuple):
    """That a table's days are dropped only once they are archived."""

    table: str
    required_from: date
    """Of this day and later ones. Those before it go as they always did."""
    changed_at: datetime


async def find_policy(conn: Connection, table: str) -> Policy | None:
    """Return what is required of a table; None: nothing."""
    row = await (await conn.execute(_FIND, (table,))).fetchone()
    return None if row is None else Policy._make(row)


async def list_policies(conn: Connection) -> list[Policy]:
    """Return what is required, of all tables."""
    return [Policy._make(row) for row in await (await conn.execute(_LIST)).fetchall()]


async def require(conn: Connection, table: str, *, actor: str, reason: str, from_day: date | None = None) -> Policy:
    """Let days of *table* from *from_day* on be dropped only once they are archived; by default from today on.

    Said again, the earlier day holds: what must be archived is let go by `stop_requiring` alone. Raises
    InvalidSettingError for a table that is not archived.
    """
    name = get_archivable(table).name
    required_from = from_day or await today(conn)
    cursor = await conn.execute(_REQUIRE, {"table": name, "required_from": required_from})
    row = await cursor.fetchone()
    assert row is not None, "one row is returned"
    policy = Policy._make(row)
    detail = {"required_from": f"{policy.required_from}"}
    await write_act(
        conn, actor=actor, action="archive.require", namespace=None, thing=name, reason=reason, detail=detail
    )
    return policy


async def stop_requiring(conn: Connection, table: str, *, actor: str, reason: str) -> bool:
    """Let days of *table* go as they are; return whether it was required, and write nothing down where it was not."""
    name = get_archivable(table).name
    is_stopped = (await conn.execute(_STOP, (name,))).rowcount > 0
    if is_stopped:
        await write_act(conn, actor=actor, action="archive.stop_requiring", namespace=None, thing=name, reason=reason)
    return is_stopped
