"""`msgcenter etl list`, `show` and `waive`: what became of days, and letting one go without an archive."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated, Any, Final

import typer

from msgbroker.contract.errors import ThingNotFoundError
from msgconsole.cli.carrying_out.service import actor
from msgconsole.cli.carrying_out.store import change_store, read_store
from msgconsole.cli.commands.etl.options import DEFAULT_TABLE, Day, OfTable, Reason, Table, read_day
from msgconsole.cli.printing.incomplete import tell_cut
from msgconsole.cli.printing.output import plain, print_json, print_line, print_rows, print_thing
from msgconsole.cli.typed.options import AsJson, Limit
from msgdb.archive import claims, listing
from msgdb.archive.records import DayState, DayStatus, RangeStatus, RunState, RunStatus
from msgdb.day_tables import ARCHIVABLE_NAMES
from msgdb.log.partitions import day_bounds
from msgdb.postgres.connections import Connection

_DAY_COLUMNS: Final = ("table", "day", "state", "required", "rows", "bytes", "age_days", "reason")
_RUN_COLUMNS: Final = ("run_id", "state", "holder", "begun_at", "rows", "files", "bytes", "manifest", "failure")
_RANGE_COLUMNS: Final = ("queue_id", "first_offset", "last_offset", "rows", "digest")
_RUNS_MAX: Final = 100


def list_(table: OfTable = None, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List days: those that wait for an archive first, then the others, the newest first.

    A day is PENDING until a verified run has all of it (ARCHIVED), or somebody lets it go without (WAIVED); then it is
    DROPPING and DROPPED. `required`: it is not dropped before. `rows` and `bytes` are of the archive. `age_days`: how
    long it is over.

    Example: msgcenter etl list --table message
    """

    async def read(connection: Connection) -> list[DayStatus]:
        # All of them: one that has been waiting for long is the last of many.
        tables = ARCHIVABLE_NAMES if table is None else (table,)
        return [day for name in tables for day in await listing.list_all_days(connection, name)]

    days = sorted(read_store(read), key=lambda day: day.day, reverse=True)
    days.sort(key=lambda day: not day.is_waiting)
    if len(days) > limit:
        tell_cut(limit)
    records = [_day_record(day) for day in days[:limit]]
    least = ("bytes", "age_days", "rows")
    print_rows(records, _DAY_COLUMNS, as_json=as_json, empty="No day is over yet.", long=["reason"], least=least)


def show(
    day: Annotated[date, typer.Argument(metavar="DAY", parser=read_day, help="In UTC, as 2026-11-17.")],
    table: Table = DEFAULT_TABLE,
    as_json: AsJson = False,
) -> None:
    """Show a day with its runs, and what the run that it is archived by (or else the last one) has of each queue.

    Example: msgcenter etl show 2026-11-17
    """

    async def read(connection: Connection) -> tuple[DayStatus, list[RunStatus], list[RangeStatus]]:
        found = await listing.find_day(connection, table, day)
        if found is None:
            raise ThingNotFoundError(f"day of {table}", f"{day}")
        runs = await listing.list_runs(connection, table, day, limit=_RUNS_MAX)
        shown = found.archived_by or found.last_run
        return found, runs, [] if shown is None else await listing.list_ranges(connection, shown.run_id)

    found, runs, ranges = read_store(read)
    record = _day_record(found)
    run_records, range_records = [_run_record(run) for run in runs], [_range_record(each) for each in ranges]
    if as_json:
        print_json({**record, "runs": run_records, "ranges": range_records})
        return
    print_thing(record, as_json=False)
    for records, columns in ((run_records, _RUN_COLUMNS), (range_records, _RANGE_COLUMNS)):
        if records:
            print_line("")
            print_rows(records, columns, as_json=False, empty="")


def waive(day: Day, reason: Reason, table: Table = DEFAULT_TABLE, as_json: AsJson = False) -> None:
    """Let a pending day be dropped without an archive. Who does it, and why, is kept for a year (`act list`).

    Its rows are gone once the day has expired. Until then it can still be archived (`etl archive`), which undoes this.

    Example: msgcenter etl waive --day 2026-11-17 --reason "load test, see OPS-12"
    """
    who = actor()
    change_store(lambda connection: claims.waive(connection, table, day, actor=who, reason=reason))
    if as_json:
        print_json({"table": table, "day": day, "state": DayState.WAIVED, "actor": who, "reason": reason})
    else:
        print_line(f"{day} of {table} is dropped without an archive once it has expired.")


def _day_record(day: DayStatus) -> dict[str, Any]:
    run = day.archived_by
    # A day that waits says why by what was noted of it, or by the run that came to nothing.
    failure = day.last_run.failure if day.last_run is not None and day.last_run.state is RunState.FAILED else None
    _, end = day_bounds(day.day)
    return {
        "table": day.table,
        "day": day.day,
        "state": day.state,
        "required": day.is_required,
        "stored": day.is_stored,
        "waiting": day.is_waiting,
        "rows": None if run is None else run.row_count,
        "files": None if run is None else run.file_count,
        "bytes": None if run is None else run.file_bytes,
        "run_id": None if run is None else run.run_id,
        "age_days": max(0, (datetime.now(UTC) - end).days),
        "reason": day.reason or (failure if day.state is DayState.PENDING else None),
        "changed_at": day.changed_at,
    }


def _run_record(run: RunStatus) -> dict[str, Any]:
    record: dict[str, Any] = plain(run)
    return {
        **{name: record[name] for name in ("run_id", "state", "holder", "begun_at", "lease_until", "ended_at")},
        "rows": run.row_count,
        "files": run.file_count,
        "bytes": run.file_bytes,
        **{name: record[name] for name in ("manifest", "failure", "base_run_id", "timeline", "closed_at")},
    }


def _range_record(each: RangeStatus) -> dict[str, Any]:
    record: dict[str, Any] = plain(each)
    record["rows"] = record.pop("row_count")
    return record
