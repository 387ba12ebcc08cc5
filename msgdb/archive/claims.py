"""Claiming days: who archives which, for how long, and what comes of it.

Whoever changes what becomes of a day locks its row first: claim, mark and waive here, and the broker that permits the
drop. A run holds its day by a lease, by the database's clock; one that has passed is never taken up again, because the
day's drop may be permitted from then on. No lease is relied on for what is true of an archive: a run that has lost its
day finds its own row changed, and changes nothing.
"""

from __future__ import annotations

from datetime import date
from typing import Final
from uuid import UUID

from msgbroker.contract.errors import (
    DayClaimedError,
    DayStateError,
    InvalidSettingError,
    RunLostError,
    ThingNotFoundError,
)
from msgdb.acts import write_act
from msgdb.archive.day_rows import check_over, day_is_there, get_archivable, is_stored
from msgdb.archive.noting import LEASE_SECONDS_MAX, LEASE_STANDS, LOCALLY, begin_noting, lock_day
from msgdb.archive.records import ArchiveRun, DayState, VerifiedRun
from msgdb.archive.supplements import find_base
from msgdb.day_tables import DayTable
from msgdb.postgres.array_rows import array_rows
from msgdb.postgres.connections import Connection

_FAILURE_CHARS_MAX: Final = 2_000

# By the index on (table_name, day).
_FIND_RUNNING: Final = f"""
SELECT run_id, holder, lease_until AT TIME ZONE 'UTC', {LEASE_STANDS}
FROM archive_run WHERE table_name = %(table)s AND day = %(day)s AND state = 'RUNNING'
FOR UPDATE
"""
# What a run was to contain goes with it, here and where it fails: a job that fails every few minutes would fill the
# store with that, and nobody reads it.
_LOSE: Final = """
WITH forgotten AS (
    DELETE FROM archive_range WHERE run_id = ANY(%(run_ids)s)
)
UPDATE archive_run SET state = 'LOST', ended_at = clock_timestamp() WHERE run_id = ANY(%(run_ids)s)
"""
_BEGIN: Final = """
INSERT INTO archive_run (run_id, table_name, day, state, base_run_id, holder, lease_until)
VALUES (%(run_id)s, %(table)s, %(day)s, 'RUNNING', %(base_run_id)s, %(holder)s,
        clock_timestamp() + %(lease_seconds)s * interval '1 second')
"""

# By what a broker goes that drops the day: where it takes the lease for passed, so does the run.
_IS_OURS: Final = f"run_id = %(run_id)s AND state = 'RUNNING' AND {LEASE_STANDS}"
_RENEW: Final = f"""
UPDATE archive_run SET lease_until = clock_timestamp() + %(lease_seconds)s * interval '1 second'
WHERE {_IS_OURS} AND {LOCALLY} IS NOT NULL
"""
# Whoever says that it failed says so in time or late: nobody has taken its day.
_FAIL: Final = f"""
WITH failed AS (
    UPDATE archive_run SET state = 'FAILED', ended_at = clock_timestamp(), failure = %(failure)s
    WHERE run_id = %(run_id)s AND state = 'RUNNING' AND {LOCALLY} IS NOT NULL
    RETURNING run_id
), forgotten AS (
    DELETE FROM archive_range r USING failed f WHERE r.run_id = f.run_id
)
SELECT run_id FROM failed
"""

_VERIFY: Final = f"""
UPDATE archive_run
SET state = 'VERIFIED', ended_at = clock_timestamp(), manifest = %(manifest)s, row_count = %(row_count)s,
    file_count = %(file_count)s, file_bytes = %(file_bytes)s
WHERE {_IS_OURS} AND closed_at IS NOT NULL
"""
_NOTE_RANGES: Final = f"""
WITH verified AS (
    SELECT * FROM {array_rows("verified", queue_id="bigint", row_count="bigint", digest="text")}
), noted AS (
    UPDATE archive_range r SET row_count = v.row_count, digest = v.digest
    FROM verified v WHERE r.run_id = %(run_id)s AND r.queue_id = v.queue_id
    RETURNING r.queue_id
)
SELECT (SELECT count(*) FROM noted), (SELECT count(*) FROM archive_range WHERE run_id = %(run_id)s)
"""
# A renewal may have crossed the moment at which the drop was permitted. What was dropped is archived again only by
# a run that adds to what was.
_POINT: Final = """
UPDATE archive_day SET state = 'ARCHIVED', run_id = %(run_id)s, reason = NULL, changed_at = clock_timestamp()
WHERE table_name = %(table)s AND day = %(day)s
  AND state <> 'DROPPING' AND (state <> 'DROPPED' OR run_id IS NOT DISTINCT FROM %(base_run_id)s)
"""

_WAIVE: Final = """
UPDATE archive_day SET state = 'WAIVED', reason = %(reason)s, changed_at = clock_timestamp()
WHERE table_name = %(table)s AND day = %(day)s
"""


async def claim(
    conn: Connection,
    table: str,
    day: date,
    *,
    run_id: UUID,
    holder: str,
    lease_seconds: float,
    again: bool = False,
) -> ArchiveRun:
    """Begin the run *run_id* (a UUIDv7) of a day, which holds the day for *lease_seconds*. In a transaction.

    A day that is archived is archived once more only *again*, and only while the store has it. A day that was dropped
    and has rows again is supplemented: the run's manifest is to list the base's files, too.

    Raises DayClaimedError, DayStillOpenError, DayStateError, ThingNotFoundError (the store has no such day), and
    InvalidSettingError for a table that is not archived.
    """
    day_table = get_archivable(table)
    _check_lease(lease_seconds)
    await begin_noting(conn)
    await check_over(conn, day_table, day)
    noted = await lock_day(conn, table, day)
    await _end_lapsed(conn, table, day)
    await _check_claimable(conn, day_table, day, noted.state, again=again)
    with day_is_there(table, day):
        base_run_id = None if noted.run_id is None else await find_base(conn, day_table, day, run_id=noted.run_id)
    run = ArchiveRun(run_id, table, day, base_run_id)
    parameters = {"holder": holder, "lease_seconds": lease_seconds}
    await conn.execute(_BEGIN, {**_names_of(run), **parameters})
    return run


async def renew(conn: Connection, run: ArchiveRun, lease_seconds: float) -> None:
    """Hold the run's day for *lease_seconds* from now. Raises RunLostError once the lease has passed."""
    _check_lease(lease_seconds)
    renewed = await conn.execute(_RENEW, {"run_id": run.run_id, "lease_seconds": lease_seconds})
    _check_ours(run, renewed.rowcount)


async def fail(conn: Connection, run: ArchiveRun, why: str) -> None:
    """End the run as failed: its day can be claimed at once. Raises RunLostError where another has taken it."""
    failure = " ".join(why.replace("\0", " ").split())[:_FAILURE_CHARS_MAX]
    failed = await conn.execute(_FAIL, {"run_id": run.run_id, "failure": failure})
    _check_ours(run, failed.rowcount)


async def mark_verified(conn: Connection, run: ArchiveRun, verified: VerifiedRun) -> None:
    """Let the run be what its day is archived by. In a transaction: the day's pointer and the run's state are one.

    Raises RunLostError where the run has lost its day; then take the transaction back.
    """
    await begin_noting(conn)
    await lock_day(conn, run.table, run.day)
    totals = {
        "manifest": verified.manifest,
        "row_count": verified.row_count,
        "file_count": verified.file_count,
        "file_bytes": verified.file_bytes,
    }
    marked = await conn.execute(_VERIFY, {"run_id": run.run_id, **totals})
    _check_ours(run, marked.rowcount)
    columns = {name: [getattr(one, name) for one in verified.ranges] for name in ("queue_id", "row_count", "digest")}
    counts = await (await conn.execute(_NOTE_RANGES, {"run_id": run.run_id, **columns})).fetchone()
    assert counts == (len(verified.ranges), len(verified.ranges)), "what was closed is what was verified"
    pointed = await conn.execute(_POINT, _names_of(run))
    _check_ours(run, pointed.rowcount)


async def waive(conn: Connection, table: str, day: date, *, actor: str, reason: str) -> None:
    """Let a pending day be dropped as it is. In a transaction, with the act that says who does it and why.

    Raises DayStateError for a day that is not pending, DayStillOpenError for one that is not over, ThingNotFoundError
    where the store has no such day, InvalidSettingError for a table that is not archived.
    """
    day_table = get_archivable(table)
    await begin_noting(conn)
    await check_over(conn, day_table, day)
    noted = await lock_day(conn, table, day)
    if noted.state is not DayState.PENDING:
        raise DayStateError(table, f"{day}", noted.state, "only a day that is pending is waived")
    if not await is_stored(conn, day_table, day):
        raise ThingNotFoundError(f"day of {table}", f"{day}")
    await conn.execute(_WAIVE, {"table": table, "day": day, "reason": reason})
    await write_act(conn, actor=actor, action="archive.waive", namespace=None, thing=f"{table} {day}", reason=reason)


async def _end_lapsed(conn: Connection, table: str, day: date) -> None:
    """Take the day from runs whose leases have passed. Raises DayClaimedError where one has not."""
    running = await (await conn.execute(_FIND_RUNNING, {"table": table, "day": day})).fetchall()
    for _, holder, lease_until, is_alive in running:
        if is_alive:
            raise DayClaimedError(table, f"{day}", holder, f"{lease_until:%Y-%m-%d %H:%M:%S} (UTC)")
    await conn.execute(_LOSE, {"run_ids": [run_id for run_id, *_ in running]})


async def _check_claimable(conn: Connection, table: DayTable, day: date, state: DayState, *, again: bool) -> None:
    if state is DayState.DROPPING:
        raise DayStateError(table.name, f"{day}", state, "what is being dropped is archived already, or waived")
    if state is DayState.ARCHIVED and not again:
        raise DayStateError(table.name, f"{day}", state, "say `again` to archive it once more")
    if await is_stored(conn, table, day):
        return
    if state in {DayState.ARCHIVED, DayState.DROPPED}:
        raise DayStateError(table.name, f"{day}", state, "the store has nothing of it any more")
    if table.is_partitioned:
        raise ThingNotFoundError(f"day of {table.name}", f"{day}")


def _names_of(run: ArchiveRun) -> dict[str, object]:
    return {"run_id": run.run_id, "table": run.table, "day": run.day, "base_run_id": run.base_run_id}


def _check_lease(lease_seconds: float) -> None:
    if not 0 < lease_seconds <= LEASE_SECONDS_MAX:
        raise InvalidSettingError("lease_seconds", f"must be more than 0, and {LEASE_SECONDS_MAX:g} at most")


def _check_ours(run: ArchiveRun, changed: int) -> None:
    if changed == 0:
        raise RunLostError(f"{run.run_id}")
