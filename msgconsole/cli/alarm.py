"""`msgcenter alarm`: what brokers have set aside, or found at its limit."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from msgconsole.cli import places
from msgconsole.cli.options import AsJson
from msgconsole.cli.output import print_rows
from msgconsole.databases import open_message_store
from msgdb.alarms import AlarmRow, list_alarms

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Tell typer that this is a group of commands, though there is only one."""


@app.command("list")
def list_(
    show_all: Annotated[bool, typer.Option("--all", help="Also those that were cleared in the last 30 days.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many at most.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the alarms that stand, the newest first: what is wrong, since when, and which broker says so.

    A broker goes on with all the rest meanwhile, and tries again what it has set aside; an alarm is cleared when that
    works. `state` is `silent` where the broker has not repeated it for a minute: it is gone, or cut off from the store.

    Example: msgcenter alarm list --all
    """

    async def read() -> list[AlarmRow]:
        async with open_message_store(places.msgdb_url()) as store, store.connection() as connection:
            return await list_alarms(connection, include_cleared=show_all, limit=limit)

    columns = ["raised_at", "kind", "thing", "broker", "state", "detail"]
    if show_all:
        columns.insert(1, "cleared_at")
    print_rows([_record(row) for row in asyncio.run(read())], columns, as_json=as_json, empty="No alarms.")


def _record(row: AlarmRow) -> dict[str, Any]:
    state = "cleared" if row.cleared_at is not None else "silent" if row.is_silent else "stands"
    record = row._asdict()
    del record["is_silent"]
    return {**record, "state": state, "broker": row.broker or None}
