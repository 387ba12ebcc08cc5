"""`msgcenter dead-letters`: messages given up on."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import typer

from msgconsole.cli.options import DEFAULT_NAMESPACE, AsJson, Limit, Namespace, OfGroup
from msgconsole.cli.output import body_record, print_rows, print_thing
from msgconsole.cli.service import look_up
from msgconsole.cli.store import read_store
from msgdb.lanes.dead_letters import DeadLetterSummary, get_dead_letter, list_dead_letters
from msgdb.postgres.binary_rows import datetime_of

app = typer.Typer(no_args_is_help=True)

_COLUMNS = ("id", "died_at", "group", "topic", "event_code", "reason", "last_error")


@app.command("list")
def list_(
    group: OfGroup = None,
    before: Annotated[int | None, typer.Option("--before", help="Only those older than this id.")] = None,
    limit: Limit = 50,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """List dead letters, the newest first. Times are UTC, long errors are cut; `show` and --json tell more.

    Example: msgcenter dead-letters list --group SG_POINTS --json
    """
    group_id = None
    if group is not None:
        group_id = look_up(lambda service: service.subscriber_groups.get(namespace, group)).group_id
    found = read_store(lambda connection: list_dead_letters(connection, group_id, before_id=before, limit=limit))
    records = [_record(summary) for summary in found]
    print_rows(records, _COLUMNS, as_json=as_json, empty="No dead letters.", long=["last_error"])


@app.command("show")
def show(
    dead_letter_id: Annotated[int, typer.Argument(metavar="ID", help="As listed.")], as_json: AsJson = False
) -> None:
    """Show a dead letter with its body.

    Example: msgcenter dead-letters show 17
    """
    found = read_store(lambda connection: get_dead_letter(connection, dead_letter_id))
    print_thing(_record(found.summary) | body_record(found.body), as_json=as_json)


def _record(summary: DeadLetterSummary) -> dict[str, Any]:
    record = summary._asdict()
    times = {name: datetime_of(record.pop(f"{name}_us")) for name in ("died_at", "stored_at", "born_at")}
    return {
        "id": record.pop("dead_letter_id"),
        "group": record.pop("group_name"),
        "message_id": UUID(bytes=record.pop("message_id")),
        **record,
        **times,
    }
