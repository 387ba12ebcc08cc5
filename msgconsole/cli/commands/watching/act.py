"""`msgcenter act`: who did what to messages, and why."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from msgconsole.cli.carrying_out.store import read_store
from msgconsole.cli.printing.incomplete import tell_more
from msgconsole.cli.printing.output import plain, print_line, print_rows, print_thing, shown
from msgconsole.cli.typed.options import AsJson, Limit, OfActor
from msgconsole.cli.typed.times import Since, Until
from msgconsole.operations.times import check_order
from msgdb.acts import get_act, list_acts

app = typer.Typer(no_args_is_help=True)

_COLUMNS: Final = ("act_id", "at", "actor", "action", "thing", "reason")


@app.command("list")
def list_(
    action: Annotated[
        str, typer.Option("--action", help="Only those whose action begins like this: `archive.`, ...")
    ] = "",
    actor: OfActor = None,
    since: Since = None,
    until: Until = None,
    before: Annotated[int | None, typer.Option("--before", help="Only acts older than this id.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List what operators did to messages, and why, the newest first. Kept for a year. Times are UTC.

    What they did to the configuration is in `msgcenter audit`.

    Example: msgcenter act list --action archive. --since yesterday
    """
    check_order(since, until)
    found = read_store(
        lambda connection: list_acts(
            connection, action=action, actor=actor or "", since=since, until=until, before_id=before, limit=limit
        )
    )
    print_rows(found, _COLUMNS, as_json=as_json, empty="No acts.", long=["reason"])
    tell_more(found, limit, f"go on with --before {found[-1].act_id if found else 0}")


@app.command("show")
def show(act_id: Annotated[int, typer.Argument(metavar="ID", help="As listed.")], as_json: AsJson = False) -> None:
    """Show an act with all that was noted of it.

    Example: msgcenter act show 3
    """
    found = read_store(lambda connection: get_act(connection, act_id))
    if as_json:
        print_thing(found, as_json=True)
        return
    record = plain(found)
    detail = record.pop("detail")
    print_thing(record, as_json=False)
    if detail:
        print_line("Detail:")
        print_thing({name: _on_lines(detail[name]) for name in sorted(detail)}, as_json=False)


def _on_lines(value: object) -> str:
    """Return what was noted of an act: what is nested, each of it on a line of its own."""
    if isinstance(value, dict):
        return "\n".join(f"{name}={shown(value[name])}" for name in sorted(value)) or "-"
    if isinstance(value, list) and any(isinstance(each, (list, dict)) for each in value):
        return "\n".join(map(shown, value))
    return shown(value) or "-"
