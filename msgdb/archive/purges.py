"""Whether dead letters of a day may be deleted by hand: not while a run reads them, nor before they are archived.

Part of the caller's transaction, which deletes: until it ends no run claims the day. One that nothing is noted of may
be claimed, and its run waits with closing it for whoever deletes.
"""

from __future__ import annotations

from datetime import date
from typing import Final

from msgdb import names
from msgdb.archive.noting import LEASE_STANDS, lock_noted_day
from msgdb.archive.policy import find_policy
from msgdb.archive.records import DayState
from msgdb.postgres.connections import Connection

_MAY_GO: Final = frozenset({DayState.ARCHIVED, DayState.WAIVED, DayState.DROPPING})

# Index: on (table_name, day).
_LIVE_RUN: Final = f"""
SELECT holder FROM archive_run WHERE table_name = %s AND day = %s AND state = 'RUNNING' AND {LEASE_STANDS} LIMIT 1
"""


async def find_purge_problem(conn: Connection, day: date, *, include_unarchived: bool) -> str | None:
    """Return why dead letters of *day* must stay for now; None: they may go.

    *include_unarchived*: those that must be archived and are not, too.
    """
    locked = await lock_noted_day(conn, names.DEAD_LETTER, day)
    run = await (await conn.execute(_LIVE_RUN, (names.DEAD_LETTER, day))).fetchone()
    if run is not None:
        return f"dead letters of {day} are just being archived by {run[0]}"
    if include_unarchived or (locked is not None and locked.state in _MAY_GO):
        return None
    policy = await find_policy(conn, names.DEAD_LETTER)
    if policy is None or day < policy.required_from:
        return None
    return f"dead letters of {day} must be archived first"
