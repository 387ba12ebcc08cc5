"""What became of days and runs: for operators, for readers of the archive, and for those who watch over it.

Days that nothing was noted of are listed, too: once they are over, they are pending as long as the store has them.
Nothing here locks anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import Final, NamedTuple
from uuid import UUID

from msgdb.archive.day_rows import get_archivable, is_stored
from msgdb.archive.policy import Policy, find_policy, list_policies
from msgdb.archive.records import THERE_AGAIN, DayState, DayStatus, RangeStatus, RunState, RunStatus, WaitingDay
from msgdb.archive.stored_days import list_stored_days
from msgdb.day_tables import DAY_TABLES, DayTable
from msgdb.log.partitions import day_bounds, today
from msgdb.postgres.connections import Connection

PAGE_MAX: Final = 1_000
_NOT_YET: Final = "no run has archived it yet"

_LAST_RUN: Final = """
(
    SELECT r.run_id FROM archive_run r WHERE r.table_name = d.table_name AND r.day = d.day
    ORDER BY r.begun_at DESC LIMIT 1
)
"""
# By the primary key, backwards; the last run of each by the index on (table_name, day).
_LIST_NOTED: Final = f"""
SELECT d.day, d.state, d.run_id, d.reason, d.changed_at, {_LAST_RUN} FROM archive_day d
WHERE d.table_name = %(table)s AND d.day < %(before)s ORDER BY d.day DESC LIMIT %(limit)s
"""
_FIND_NOTED: Final = f"""
SELECT d.day, d.state, d.run_id, d.reason, d.changed_at, {_LAST_RUN} FROM archive_day d
WHERE d.table_name = %(table)s AND d.day = ANY(%(days)s::date[])
"""

_RUN_COLUMNS: Final = """
run_id, table_name, day, state, base_run_id, holder, begun_at, lease_until,
state = 'RUNNING' AND lease_until > clock_timestamp(), timeline, closed_at, ended_at, failure,
manifest, row_count, file_count, file_bytes
"""
_GET_RUNS: Final = f"SELECT {_RUN_COLUMNS} FROM archive_run WHERE run_id = ANY(%s)"
# By the index on (table_name, day). By the database's clock: ids are made by that of whoever claims.
_LIST_RUNS: Final = f"""
SELECT {_RUN_COLUMNS} FROM archive_run WHERE table_name = %(table)s AND day = %(day)s
ORDER BY begun_at DESC LIMIT %(limit)s
"""
# By the primary key.
_LIST_RANGES: Final = """
SELECT queue_id, first_offset, last_offset, last_message_id, row_count, digest FROM archive_range
WHERE run_id = %(run_id)s ORDER BY queue_id LIMIT %(limit)s
"""
_SECONDS_SINCE: Final = "SELECT extract(epoch FROM clock_timestamp() - %s)::float8"


class _NotedDay(NamedTuple):
    """A row of `archive_day`, and the day's last run."""

    day: date
    state: str
    run_id: UUID | None
    reason: str | None
    changed_at: datetime | None
    last_run_id: UUID | None


async def find_day(conn: Connection, table: str, day: date) -> DayStatus | None:
    """Return what is known of a day; None: nothing was noted of it, and the store does not have it, or it is not over.

    Raises InvalidSettingError for a table that is not archived.
    """
    day_table = get_archivable(table)
    noted = await _find_noted(conn, table, [day])
    policy = await find_policy(conn, table)
    stored = {day} if await is_stored(conn, day_table, day) else set()
    missing = stored if day < await today(conn) else ()
    days = await _statuses(conn, table, policy, stored, [*noted, *_unnoted(missing, noted)])
    return days[0] if days else None


async def list_days(conn: Connection, table: str, *, before: date | None = None, limit: int = 100) -> list[DayStatus]:
    """Return a page of the days of *table*, the newest first; the last one begins the next page.

    Raises InvalidSettingError for a table that is not archived.
    """
    day_table = get_archivable(table)
    open_day = await today(conn)
    before = open_day if before is None else min(before, open_day)
    limit = min(limit, PAGE_MAX)
    parameters = {"table": table, "before": before, "limit": limit}
    noted = [_NotedDay._make(row) for row in await (await conn.execute(_LIST_NOTED, parameters)).fetchall()]
    policy = await find_policy(conn, table)
    stored = await _list_stored(conn, day_table, before)
    # What is cut off is on a later page, noted or not.
    page = sorted([*noted, *_unnoted(stored, noted)], reverse=True)[:limit]
    return await _statuses(conn, table, policy, stored, page)


async def list_all_days(conn: Connection, table: str) -> list[DayStatus]:
    """Return all days of *table*, the newest first: one for each day since the first, so some thousands after years.

    Raises InvalidSettingError for a table that is not archived.
    """
    days: list[DayStatus] = []
    while True:
        page = await list_days(conn, table, before=days[-1].day if days else None, limit=PAGE_MAX)
        days += page
        if len(page) < PAGE_MAX:
            return days


async def list_runs(conn: Connection, table: str, day: date, *, limit: int = 100) -> list[RunStatus]:
    """Return the runs of a day, the newest first."""
    parameters = {"table": table, "day": day, "limit": min(limit, PAGE_MAX)}
    return _runs_of(await (await conn.execute(_LIST_RUNS, parameters)).fetchall())


async def list_ranges(conn: Connection, run_id: UUID, *, limit: int = PAGE_MAX) -> list[RangeStatus]:
    """Return what a run has of each queue, in the queues' order."""
    parameters = {"run_id": run_id, "limit": min(limit, PAGE_MAX)}
    return [RangeStatus._make(row) for row in await (await conn.execute(_LIST_RANGES, parameters)).fetchall()]


async def find_oldest_waiting(conn: Connection) -> WaitingDay | None:
    """Return the day that has been waiting longest for a run that archives it, and why; None: none waits.

    It is for all tables of which an archive is required, and reads no more than what there is of days.
    """
    open_day = await today(conn)
    oldest: DayStatus | None = None
    # What a later version requires of a table that is not known here is that version's to watch.
    for policy in [policy for policy in await list_policies(conn) if policy.table in DAY_TABLES]:
        day = await _find_oldest(conn, policy, open_day)
        if day is not None and (oldest is None or day.day < oldest.day):
            oldest = day
    if oldest is None:
        return None
    row = await (await conn.execute(_SECONDS_SINCE, (day_bounds(oldest.day)[1],))).fetchone()
    assert row is not None, "it is one row"
    return WaitingDay(oldest.table, oldest.day, row[0], _why(oldest))


async def _find_oldest(conn: Connection, policy: Policy, open_day: date) -> DayStatus | None:
    stored = await _list_stored(conn, DAY_TABLES[policy.table], open_day)
    required = [day for day in stored if _is_required(policy, day)]
    noted = await _find_noted(conn, policy.table, required)
    done = {row.day for row in noted if row.state not in {DayState.PENDING, DayState.DROPPED}}
    waiting = min((day for day in required if day not in done), default=None)
    if waiting is None:
        return None
    row = next((row for row in noted if row.day == waiting), None) or _unnoted([waiting], noted)[0]
    return (await _statuses(conn, policy.table, policy, {waiting}, [row]))[0]


def _why(day: DayStatus) -> str:
    """Say why a day waits: what is noted of it, and what its last run says."""
    run = day.last_run
    said = [day.reason or (THERE_AGAIN if day.state is DayState.DROPPED else "")]
    if run is not None and run.is_alive:
        said.append(f"{run.holder} is archiving it")
    elif run is not None and run.state is RunState.FAILED:
        said.append(f"its last run failed: {run.failure}")
    elif run is not None and run.state in {RunState.RUNNING, RunState.LOST}:
        said.append(f"its last run was lost: the lease of {run.holder} has passed")
    return "; ".join(part for part in said if part) or _NOT_YET


async def _list_stored(conn: Connection, table: DayTable, before: date) -> set[date]:
    return {stored.day for stored in await list_stored_days(conn, table, before)}


async def _find_noted(conn: Connection, table: str, days: Sequence[date]) -> list[_NotedDay]:
    rows = await (await conn.execute(_FIND_NOTED, {"table": table, "days": list(days)})).fetchall()
    return [_NotedDay._make(row) for row in rows]


def _unnoted(days: Iterable[date], noted: Iterable[_NotedDay]) -> list[_NotedDay]:
    """Return what would be noted of those of *days* that are not among *noted*."""
    return [_NotedDay(day, DayState.PENDING, None, None, None, None) for day in set(days) - {row.day for row in noted}]


def _is_required(policy: Policy | None, day: date) -> bool:
    return policy is not None and day >= policy.required_from


async def _statuses(
    conn: Connection, table: str, policy: Policy | None, stored: set[date], noted: Sequence[_NotedDay]
) -> list[DayStatus]:
    ids = {run_id for row in noted for run_id in (row.run_id, row.last_run_id) if run_id is not None}
    runs = {run.run_id: run for run in _runs_of(await (await conn.execute(_GET_RUNS, (list(ids),))).fetchall())}
    return [
        DayStatus(
            table,
            row.day,
            DayState(row.state),
            row.reason,
            row.changed_at,
            is_required=_is_required(policy, row.day),
            is_stored=row.day in stored,
            archived_by=None if row.run_id is None else runs.get(row.run_id),
            last_run=None if row.last_run_id is None else runs.get(row.last_run_id),
        )
        for row in noted
    ]


def _runs_of(rows: Iterable[tuple[object, ...]]) -> list[RunStatus]:
    return [RunStatus._make((*row[:3], RunState(str(row[3])), *row[4:])) for row in rows]
