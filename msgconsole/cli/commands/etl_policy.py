"""`msgcenter etl require`, `stop-requiring`, `policy` and `acts`: whether days are archived before they are dropped."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from msgconsole.cli.commands.etl_options import DEFAULT_TABLE, Reason, Table
from msgconsole.cli.options import AsJson, Limit
from msgconsole.cli.output import print_json, print_line, print_rows
from msgconsole.cli.service import actor
from msgconsole.cli.store import change_store, read_store
from msgdb.archive.acts import list_acts
from msgdb.archive.policy import list_policies
from msgdb.archive.policy import stop_requiring as stop_requiring_of

_POLICY_COLUMNS: Final = ("table", "required_from", "changed_at")
_ACT_COLUMNS: Final = ("act_id", "at", "actor", "action", "thing", "reason")


def stop_requiring(reason: Reason, table: Table = DEFAULT_TABLE, as_json: AsJson = False) -> None:
    """Let days be dropped as they expire, archived or not. Who does it, and why, is kept for a year (`etl acts`).

    Example: msgcenter etl stop-requiring --reason "archive moves to another bucket"
    """
    who = actor()
    was_required = change_store(lambda connection: stop_requiring_of(connection, table, actor=who, reason=reason))
    if as_json:
        print_json({"table": table, "was_required": was_required})
    elif was_required:
        print_line(f"Days of {table} are dropped as they expire from now on, archived or not.")
    else:
        print_line(f"No archive of {table} was required.")


def policy(as_json: AsJson = False) -> None:
    """Show of which tables an archive is required before a day is dropped, and from which day on.

    Example: msgcenter etl policy
    """
    nothing = "No archive is required: days are dropped as they expire."
    print_rows(read_store(list_policies), _POLICY_COLUMNS, as_json=as_json, empty=nothing)


def acts(
    before: Annotated[int | None, typer.Option("--before", help="Only acts older than this id.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """Show who did what to stored messages, and why, the newest first. Kept for a year. Times are UTC.

    Example: msgcenter etl acts --json
    """
    found = read_store(lambda connection: list_acts(connection, before_id=before, limit=limit))
    print_rows(found, _ACT_COLUMNS, as_json=as_json, empty="No acts.", long=["reason"])
