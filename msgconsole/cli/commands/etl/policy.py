"""`msgcenter etl require`, `stop-requiring` and `policy`: whether days are archived before they are dropped."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.carrying_out.service import actor
from msgconsole.cli.carrying_out.store import read_store
from msgconsole.cli.commands.etl.options import DEFAULT_TABLE, Reason, Table
from msgconsole.cli.printing.output import print_json, print_line, print_rows
from msgconsole.cli.typed.options import AsJson
from msgconsole.operations.configuration.archive_switch import require_archive, stop_requiring_archive
from msgdb.archive.policy import list_policies

_POLICY_COLUMNS: Final = ("table", "required_from", "changed_at")


def require(
    reason: Reason,
    table: Table = DEFAULT_TABLE,
    include_past: Annotated[
        bool, typer.Option("--include-past", help="Of all days that are there, not only from today on.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Let days be dropped only once they are archived, from today on. It outranks the time that they are kept for.

    It holds for every broker, whatever its settings. Refused while a broker runs that does not understand it; the store
    stops one that is started later. Who does it, and why, is kept for a year (`act list`).

    Example: msgcenter etl require --reason "audit" --include-past
    """
    required = act(
        lambda stores: require_archive(stores, table=table, actor=actor(), reason=reason, include_past=include_past)
    )
    if as_json:
        print_json(required)
    else:
        print_line(f"Days of {table} from {required.required_from} on are dropped only once they are archived.")


def stop_requiring(reason: Reason, table: Table = DEFAULT_TABLE, as_json: AsJson = False) -> None:
    """Let days be dropped as they expire, archived or not. Who does it, and why, is kept for a year (`act list`).

    Example: msgcenter etl stop-requiring --reason "archive moves to another bucket"
    """
    was_required = act(lambda stores: stop_requiring_archive(stores, table=table, actor=actor(), reason=reason))
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
