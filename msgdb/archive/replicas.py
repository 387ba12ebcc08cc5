"""Reading a closed day from a replica: only once it has replayed what was closed.

What tells is the row of the run itself: it was committed after all that the day has, and what comes after it in the
write-ahead log is seen after it. A replica of another cluster never has it; one that was promoted has a history of its
own from then on, and is refused even where it has the row.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from msgbroker.contract.errors import ReplicaBehindError, ReplicaDiffersError
from msgdb.archive.records import ArchiveRun, ClosedDay
from msgdb.postgres.connections import Connection
from msgdb.postgres.history import TIMELINE

_LOOK_SECONDS: Final = 0.1

# A standby does not name its timeline as a primary does. What it receives and what it was started from tell: the newest
# of them. They may be behind, never ahead; a standby on an older timeline does not have the row.
_IDENTITY: Final = f"""
SELECT pg_is_in_recovery(), CASE WHEN pg_is_in_recovery() THEN (
    SELECT s.system_identifier || '/' || lpad(upper(to_hex(greatest(
        c.timeline_id, r.min_recovery_end_timeline, (SELECT max(received_tli) FROM pg_stat_wal_receiver)
    ))), 8, '0')
    FROM pg_control_system() s, pg_control_checkpoint() c, pg_control_recovery() r
) ELSE {TIMELINE} END
"""
_HAS_RUN: Final = "SELECT EXISTS (SELECT 1 FROM archive_run WHERE run_id = %s AND closed_lsn = %s)"
_BEHIND: Final = "SELECT greatest(pg_wal_lsn_diff(%s, pg_last_wal_replay_lsn()), 0)::bigint"


async def wait_for_replay(replica: Connection, run: ArchiveRun, closed: ClosedDay, *, wait_seconds: float) -> None:
    """Wait until *replica* has all that was closed. On a connection in autocommit mode; the primary itself is one, too.

    Raises ReplicaDiffersError for one of another cluster or timeline, ReplicaBehindError when *wait_seconds* have
    passed.
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        timeline = await _find_timeline(replica, closed)
        found = await replica.execute(_HAS_RUN, (run.run_id, closed.closed_lsn))
        if await found.fetchone() == (True,):
            return
        if time.monotonic() >= deadline:
            raise ReplicaBehindError(wait_seconds, await _say_how_far(replica, timeline, closed))
        await asyncio.sleep(_LOOK_SECONDS)


async def _find_timeline(replica: Connection, closed: ClosedDay) -> str:
    """Return the replica's cluster and timeline. Raises ReplicaDiffersError for another history than the day's."""
    row = await (await replica.execute(_IDENTITY)).fetchone()
    assert row is not None, "it is one row"
    is_standby, found = row
    cluster, _, timeline = found.partition("/")
    expected_cluster, _, expected = closed.timeline.partition("/")
    # In hexadecimal, of one length. A standby may be about to follow to a newer one.
    if cluster != expected_cluster or timeline > expected or (timeline < expected and not is_standby):
        raise ReplicaDiffersError(found, closed.timeline)
    return str(found)


async def _say_how_far(replica: Connection, timeline: str, closed: ClosedDay) -> str:
    if timeline != closed.timeline:
        return f"it is on timeline {timeline}, and the day was closed on {closed.timeline}"
    row = await (await replica.execute(_BEHIND, (closed.closed_lsn,))).fetchone()
    assert row is not None, "it is one row"
    return f"it has {row[0]} bytes of the write-ahead log to replay, at least"
