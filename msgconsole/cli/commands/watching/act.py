"""`msgcenter act`: who did what to messages, and why."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from msgconsole.cli.carrying_out.store import read_store
from msgconsole.cli.printing.incomplete import tell_more
from msgconsole.cli.printing.output import print_rows, print_thing
from msgconsole.cli.typed.options import AsJson, Limit
from msgdb.acts import get_act, list_acts

app = typer.Typer(no_args_is_help=True)

_COLUMNS: Final = ("act_id", "at", "actor", "action", "thing", "reason")


@app.command("list")
def list_(
    action: Annotated[
        str, typer.Option("--action", help="Only those whose action begins like this: `archive.`, ...")
    ] = "",
    before: Annotated[int | None, typer.Option("--before", help="Only acts older than this id.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List what operators did to messages, and why, the newest first. Kept for a year. Times are UTC.

    What they did to the configuration is in `msgcenter audit`.

    Example: msgcenter act list --action archive.
    """
    found = read_store(lambda connection: list_acts(connection, action=action, before_id=before, limit=limit))
    print_rows(found, _COLUMNS, as_json=as_json, empty="No acts.", long=["reason"])
    tell_more(found, limit, f"go on with --before {found[-1].act_id if found else 0}")


@app.command("show")
def show(act_id: Annotated[int, typer.Argument(metavar="ID", help="As listed.")], as_json: AsJson = False) -> None:
    """Show an act with all that was noted of it.

    Example: msgcenter act show 3
    """
    print_thing(read_store(lambda connection: get_act(connection, act_id)), as_json=as_json)
