"""`msgcenter etl require`, `stop-requiring`, `policy` and `acts`: whether days are archived before they are dropped."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer

from msgconsole.cli.commands.etl_options import DEFAULT_TABLE, Reason, Table
from msgconsole.cli.options import AsJson, Limit
from msgconsole.cli.output import print_json, print_line, print_rows
from msgconsole.cli.service import actor
from msgconsole.cli.store import read_store
from msgconsole.local import places
from msgconsole.local.databases import open_config_store, open_message_store
from msgconsole.operations.archive_switch import require_archive, stop_requiring_archive
from msgdb.archive.acts import list_acts
from msgdb.archive.policy import Policy, list_policies

_POLICY_COLUMNS: Final = ("table", "required_from", "changed_at")
_ACT_COLUMNS: Final = ("act_id", "at", "actor", "action", "thing", "reason")


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
    stops one that is started later. Who does it, and why, is kept for a year (`etl acts`).

    Example: msgcenter etl require --reason "audit" --include-past
    """

    async def act() -> Policy:
        async with open_config_store(places.confdb_url()) as config, open_message_store(places.msgdb_url()) as store:
            return await require_archive(
                config, store, table=table, actor=actor(), reason=reason, include_past=include_past
            )

    required = asyncio.run(act())
    if as_json:
        print_json(required)
    else:
        print_line(f"Days of {table} from {required.required_from} on are dropped only once they are archived.")


def stop_requiring(reason: Reason, table: Table = DEFAULT_TABLE, as_json: AsJson = False) -> None:
    """Let days be dropped as they expire, archived or not. Who does it, and why, is kept for a year (`etl acts`).

    Example: msgcenter etl stop-requiring --reason "archive moves to another bucket"
    """

    async def act() -> bool:
        async with open_message_store(places.msgdb_url()) as store:
            return await stop_requiring_archive(store, table=table, actor=actor(), reason=reason)

    was_required = asyncio.run(act())
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
