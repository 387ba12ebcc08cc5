"""Transactions that note what becomes of a day: how they commit, and what they lock first.

A run waits for no standby with what it notes, or it could not even say that its day stays open because one is away. A
failover that loses it loses what followed from it, too: the day is there, and is archived once more. And whoever
freezes in the middle of one, holding a day that a broker asks for, is ended by the server.
"""

from __future__ import annotations

from datetime import date
from typing import Final, NamedTuple
from uuid import UUID

from msgdb.archive.records import DayState
from msgdb.postgres.connections import Connection

LOCK_SECONDS: Final = 5.0
"""How long somebody who changes the day is waited for."""
HELD_SECONDS_MAX: Final = 5.0
"""How long a transaction may stand idle."""

LEASE_SECONDS_MAX: Final = 3_600.0
# Where the clock was set back a lease runs for longer than any that is given: it counts as passed, and its run, should
# it be alive, has lost the day.
LEASE_STANDS: Final = f"""
(lease_until > clock_timestamp() AND lease_until <= clock_timestamp() + {LEASE_SECONDS_MAX} * interval '1 second')
"""

LOCALLY: Final = "set_config('synchronous_commit', 'local', true)"
_LIMIT: Final = f"""
SELECT {LOCALLY}, set_config('lock_timeout', %s, true), set_config('idle_in_transaction_session_timeout', %s, true)
"""

# The order for all who change a day: first this lock. Two statements, because one that inserts nothing locks nothing.
# Whoever comes second waits for the first one's commit, and sees what it wrote.
_MAKE_DAY: Final = """
INSERT INTO archive_day (table_name, day, state) VALUES (%(table)s, %(day)s, 'PENDING')
ON CONFLICT (table_name, day) DO NOTHING
"""
_LOCK_DAY: Final = """
SELECT state, run_id, reason FROM archive_day WHERE table_name = %(table)s AND day = %(day)s FOR UPDATE
"""


class LockedDay(NamedTuple):
    """What is noted of a day, which nobody else changes until the transaction ends."""

    state: DayState
    run_id: UUID | None
    """The run that it is archived by."""
    reason: str | None

    @property
    def is_waived(self) -> bool:
        """Whether somebody said that it may go without an archive: it keeps the reason on its way out."""
        return self.state is DayState.WAIVED or (self.state is DayState.DROPPING and self.reason is not None)


async def begin_noting(conn: Connection) -> None:
    """Let the transaction that has begun commit without standbys, and hold others up for a moment at most."""
    await conn.execute(_LIMIT, (f"{round(LOCK_SECONDS * 1_000)}", f"{round(HELD_SECONDS_MAX * 1_000)}"))


async def lock_day(conn: Connection, table: str, day: date) -> LockedDay:
    """Lock the day's row, made if it is missing, until the transaction ends."""
    await conn.execute(_MAKE_DAY, {"table": table, "day": day})
    locked = await lock_noted_day(conn, table, day)
    assert locked is not None, "no day is ever taken away"
    return locked


async def lock_noted_day(conn: Connection, table: str, day: date) -> LockedDay | None:
    """Lock the day's row until the transaction ends; None: nothing is noted of the day."""
    row = await (await conn.execute(_LOCK_DAY, {"table": table, "day": day})).fetchone()
    return None if row is None else LockedDay(DayState(row[0]), row[1], row[2])
