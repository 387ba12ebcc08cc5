"""`msgcenter dead-letters`: messages given up on."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import typer

from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.commands.dead_letters import acts
from msgconsole.cli.commands.dead_letters.options import (
    DiedOf,
    DiedSince,
    DiedUntil,
    Earlier,
    OfError,
    check_earlier,
    tell_earlier,
)
from msgconsole.cli.printing.output import body_record, plain, print_json, print_line, print_rows, print_thing
from msgconsole.cli.typed.options import (
    DEFAULT_NAMESPACE,
    AsJson,
    Limit,
    Namespace,
    OfEventCode,
    OfGroup,
    OfKey,
    OfTopic,
)
from msgconsole.operations.dead_letters.meant import EarlierLetters, count_earlier, registered_groups, resolve_group
from msgconsole.operations.stores import Stores
from msgdb.dead_letters.reading import (
    DeadLetter,
    DeadLetterPage,
    DeadLetterSummary,
    Redrive,
    get_dead_letter,
    list_dead_letters,
    list_redrives,
)
from msgdb.dead_letters.wanted import WantedDeadLetters
from msgdb.postgres.binary_rows import datetime_of

app = typer.Typer(no_args_is_help=True)
app.command("redrive")(acts.redrive)
app.command("purge")(acts.purge)

_COLUMNS = (
    "id",
    "died_at",
    "group",
    "topic",
    "event_code",
    "key",
    "why",
    "last_error",
    "redriven_at",
    "message_id",
)


@app.command("list")
def list_(
    group: OfGroup = None,
    topic: OfTopic = None,
    event_code: OfEventCode = None,
    key: OfKey = None,
    why: DiedOf = None,
    error: OfError = None,
    since: DiedSince = None,
    until: DiedUntil = None,
    is_open: Annotated[
        bool | None, typer.Option("--open/--redriven", help="Only those that nobody has redriven yet, or the others.")
    ] = None,
    is_earlier: Earlier = False,
    before: Annotated[int | None, typer.Option("--before", help="Only those older than this id.")] = None,
    limit: Limit = 50,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """List dead letters, the newest first. Times are UTC, long errors are cut; `show` and --json tell more.

    Where there are more, standard error says how to go on; and that a group that was deleted has left some, by the
    name of the one that is registered.

    Example: msgcenter dead-letters list --group SG_POINTS --error timeout --since 2h --open
    """
    check_earlier(group, is_earlier=is_earlier)
    wanted = WantedDeadLetters(
        topic=topic, event_code=event_code, key=key, why=why, error=error, died_from=since, died_before=until,
        is_open=is_open,
    )  # fmt: skip

    async def read(stores: Stores) -> tuple[DeadLetterPage, frozenset[int], EarlierLetters]:
        resolved = await resolve_group(stores, wanted, namespace, group, is_earlier=is_earlier)
        async with stores.messages.looking() as conn:
            page = await list_dead_letters(conn, resolved, before_id=before, limit=limit)
        return page, await registered_groups(stores), await count_earlier(stores, resolved, group)

    page, registered, earlier = act(read)
    records = [_record(summary, registered) for summary in page.items]
    shown = records if as_json else [*map(_marked, records)]
    least = ("message_id", "redriven_at", "key", "event_code", "topic")
    print_rows(shown, _COLUMNS, as_json=as_json, empty="No dead letters.", long=["last_error"], least=least)
    if before is None:
        tell_earlier(group, earlier, "--earlier shows these")
    if page.next_before_id is not None:
        because = "Not all of them were looked at" if page.is_cut else "There may be more"
        typer.echo(f"{because}: go on with --before {page.next_before_id}.", err=True)


@app.command("show")
def show(
    dead_letter_id: Annotated[int, typer.Argument(metavar="ID", help="As listed.")],
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Show a dead letter with its body, and where its message lies if it was redriven.

    Example: msgcenter dead-letters show 17
    """

    async def read(stores: Stores) -> tuple[DeadLetter, list[Redrive], frozenset[int]]:
        async with stores.messages.looking() as connection:
            found = await get_dead_letter(connection, dead_letter_id, namespace=namespace)
            redriven = await list_redrives(connection, dead_letter_id)
        return found, redriven, await registered_groups(stores)

    found, redriven, registered = act(read)
    record = _record(found.summary, registered) | body_record(found.body)
    if as_json:
        print_json(plain(record) | {"redriven_by": plain(redriven)})
        return
    print_thing(_marked(record), as_json=False)
    if redriven:
        print_line("")
        print_rows(redriven, Redrive._fields, as_json=False, empty="")


def _marked(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record as people read it: a group that was deleted is another than one that has its name now.

    `why` is what may be asked for by that name.
    """
    others = {name: value for name, value in record.items() if name != "is_registered"} | {"why": record["reason"]}
    return others if record["is_registered"] else others | {"group": f"{record['group']} (deleted)"}


def _record(summary: DeadLetterSummary, registered: frozenset[int]) -> dict[str, Any]:
    record = summary._asdict()
    redriven_at_us = record.pop("redriven_at_us")
    times = {name: datetime_of(record.pop(f"{name}_us")) for name in ("died_at", "stored_at", "born_at")}
    return {
        "id": record.pop("dead_letter_id"),
        "group": record.pop("group_name"),
        "is_registered": summary.group_id in registered,
        "message_id": UUID(bytes=record.pop("message_id")),
        **record,
        **times,
        "redriven_at": None if redriven_at_us is None else datetime_of(redriven_at_us),
    }
