"""`msgcenter alarm`: what brokers have set aside, or found at its limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import typer

from msgconsole.cli.options import AsJson
from msgconsole.cli.output import print_rows, print_thing
from msgconsole.local import places
from msgconsole.local.databases import open_message_store
from msgdb.postgres.connections import Connection
from msgdb.reports.alarms import AlarmRow, get_alarm, list_alarms

app = typer.Typer(no_args_is_help=True)

FoundT = TypeVar("FoundT")


@app.command("list")
def list_(
    show_all: Annotated[bool, typer.Option("--all", help="Also those that were cleared in the last 30 days.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many at most.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the alarms that stand, the newest first: what is wrong, since when, and which broker says so.

    A broker goes on with all the rest meanwhile, and tries again what it has set aside; an alarm is cleared when that
    works. `state` is `silent` where the broker has not repeated it for a minute: it is gone, or cut off from the store.
    Long details are cut; `show` and --json tell all of it.

    Example: msgcenter alarm list --all
    """
    found = _read(lambda connection: list_alarms(connection, include_cleared=show_all, limit=limit))
    columns = ["alarm_id", "raised_at", "kind", "thing", "broker", "state", "detail"]
    if show_all:
        columns.insert(2, "cleared_at")
    records = [_record(row) for row in found]
    print_rows(records, columns, as_json=as_json, empty="No alarms.", long=["detail"])


@app.command("show")
def show(alarm_id: Annotated[int, typer.Argument(metavar="ID", help="As listed.")], as_json: AsJson = False) -> None:
    """Show an alarm, with all it says.

    Example: msgcenter alarm show 3
    """
    print_thing(_record(_read(lambda connection: get_alarm(connection, alarm_id))), as_json=as_json)


def _read(act: Callable[[Connection], Awaitable[FoundT]]) -> FoundT:
    async def run() -> FoundT:
        async with open_message_store(places.msgdb_url()) as store, store.connection() as connection:
            return await act(connection)

    return asyncio.run(run())


def _record(row: AlarmRow) -> dict[str, Any]:
    state = "cleared" if row.cleared_at is not None else "silent" if row.is_silent else "stands"
    record = row._asdict()
    del record["is_silent"]
    return {**record, "state": state, "broker": row.broker or None}
