"""`msgcenter dead-letters`: messages given up on."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar
from uuid import UUID

import typer

from msgconsole.cli.options import DEFAULT_NAMESPACE, AsJson, Namespace
from msgconsole.cli.output import print_rows, print_thing
from msgconsole.cli.service import look_up
from msgconsole.local import places
from msgconsole.local.databases import open_message_store
from msgdb.lanes.dead_letters import DeadLetterSummary, get_dead_letter, list_dead_letters
from msgdb.postgres.connections import Connection

app = typer.Typer(no_args_is_help=True)

FoundT = TypeVar("FoundT")

_COLUMNS = ("id", "died_at", "group", "topic", "event_code", "reason", "last_error")


@app.command("list")
def list_(
    group: Annotated[str | None, typer.Option("--group", help="Only of this subscriber group.")] = None,
    before: Annotated[int | None, typer.Option("--before", help="Only those older than this id.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many at most.")] = 50,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """List dead letters, the newest first. Times are UTC, long errors are cut; `show` and --json tell more.

    Example: msgcenter dead-letters list --group SG_POINTS --json
    """
    group_id = None
    if group is not None:
        group_id = look_up(lambda service: service.subscriber_groups.get(namespace, group)).group_id
    found = _read(lambda connection: list_dead_letters(connection, group_id, before_id=before, limit=limit))
    records = [_record(summary) for summary in found]
    print_rows(records, _COLUMNS, as_json=as_json, empty="No dead letters.", long=["last_error"])


@app.command("show")
def show(
    dead_letter_id: Annotated[int, typer.Argument(metavar="ID", help="As listed.")], as_json: AsJson = False
) -> None:
    """Show a dead letter with its body.

    Example: msgcenter dead-letters show 17
    """
    found = _read(lambda connection: get_dead_letter(connection, dead_letter_id))
    try:
        body: dict[str, Any] = {"body": found.body.decode()}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(found.body).decode()}
    print_thing(_record(found.summary) | body, as_json=as_json)


def _read(act: Callable[[Connection], Awaitable[FoundT]]) -> FoundT:
    async def run() -> FoundT:
        async with _connection() as connection:
            return await act(connection)

    return asyncio.run(run())


@asynccontextmanager
async def _connection() -> AsyncIterator[Connection]:
    async with open_message_store(places.msgdb_url()) as store, store.connection() as connection:
        yield connection


def _record(summary: DeadLetterSummary) -> dict[str, Any]:
    record = summary._asdict()
    times = {name: _time(record.pop(f"{name}_us")) for name in ("died_at", "stored_at", "born_at")}
    return {
        "id": record.pop("dead_letter_id"),
        "group": record.pop("group_name"),
        "message_id": UUID(bytes=record.pop("message_id")),
        **record,
        **times,
    }


def _time(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC)
