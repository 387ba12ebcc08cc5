"""`msgcenter alarm`: what brokers have set aside, or found at its limit."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from msgconsole.cli.carrying_out.store import read_store
from msgconsole.cli.printing.incomplete import tell_more
from msgconsole.cli.printing.output import print_rows, print_thing
from msgconsole.cli.typed.options import AsJson, Limit
from msgdb.reports.alarms import PAGE_MAX, AlarmRow, get_alarm, list_alarms

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_(
    show_all: Annotated[bool, typer.Option("--all", help="Also those that were cleared in the last 30 days.")] = False,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """List the alarms that stand, the newest first: what is wrong, since when, and which broker says so.

    A broker goes on with all the rest meanwhile, and tries again what it has set aside; an alarm is cleared when that
    works. `state` is `silent` where the broker has not repeated it for a minute: it is gone, or cut off from the store.
    Long details are cut; `show` and --json tell all of it.

    Example: msgcenter alarm list --all
    """
    found = read_store(lambda connection: list_alarms(connection, include_cleared=show_all, limit=limit))
    columns = ["alarm_id", "raised_at", "kind", "thing", "broker", "state", "detail"]
    if show_all:
        columns.insert(2, "cleared_at")
    records = [_record(row) for row in found]
    print_rows(records, columns, as_json=as_json, empty="No alarms.", long=["detail"], least=["broker"])
    tell_more(found, limit, f"--limit shows up to {PAGE_MAX:,}")


@app.command("show")
def show(alarm_id: Annotated[int, typer.Argument(metavar="ID", help="As listed.")], as_json: AsJson = False) -> None:
    """Show an alarm, with all it says.

    Example: msgcenter alarm show 3
    """
    print_thing(_record(read_store(lambda connection: get_alarm(connection, alarm_id))), as_json=as_json)


def _record(row: AlarmRow) -> dict[str, Any]:
    state = "cleared" if row.cleared_at is not None else "silent" if row.is_silent else "stands"
    record = row._asdict()
    del record["is_silent"]
    return {**record, "state": state, "broker": row.broker or None}
