"""`msgcenter subscription`: which group wants which messages."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from msgconsole.cli.options import DEFAULT_NAMESPACE, AsJson, Limit, Namespace, NoWait
from msgconsole.cli.output import plain, print_json, print_line, print_rows
from msgconsole.cli.service import change, collect, look_up, open_service_with_tails

app = typer.Typer(no_args_is_help=True)

_Group = Annotated[str, typer.Argument(metavar="GROUP", help="The subscriber group's name.")]
_Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
_EventCode = Annotated[str, typer.Argument(metavar="EVENT_CODE", help="The event code's name, or '*' for all.")]


@app.command("create")
def create(
    group: _Group,
    topic: _Topic,
    event_code: _EventCode = "*",
    expression: Annotated[
        str | None,
        typer.Option(
            "--expression",
            help="Only messages whose headers satisfy this (CEL over `headers`). "
            "Cheap: comparing headers by name, `in` a list, one macro. Refused as too costly (50,000 steps with 64 "
            "headers): a macro inside of another, a long pattern for `matches` or one from the message.",
        ),
    ] = None,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning", help="Deliver what is stored already, too; for groups that have not read the topic yet."
        ),
    ] = False,
    no_wait: NoWait = False,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Subscribe a group to a message type, and wait until every live broker delivers by it.

    Example: msgcenter subscription create SG_POINTS TP_TRADE EC_PAID --expression 'headers.region == "hz"'
    """

    async def run() -> None:
        async with open_service_with_tails() as service:
            made = await service.subscriptions.create(
                namespace, group, topic, event_code, expression=expression, from_beginning=from_beginning
            )
            if not no_wait:
                await service.wait_until_active(made.version, group=group)
        if as_json:
            print_json(plain(made.thing) | {"config_version": made.version, "is_active": not no_wait})
        else:
            state = "registered" if no_wait else "active"
            print_line(f"The subscription of {group} to {topic}/{event_code} is {state}.")

    asyncio.run(run())


@app.command("list")
def list_(
    group: Annotated[str | None, typer.Option("--group", help="Only of this group.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Only to this topic.")] = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    limit: Limit = 1_000,
    as_json: AsJson = False,
) -> None:
    """List the subscriptions.

    Example: msgcenter subscription list --group SG_POINTS
    """
    found = look_up(
        lambda service: collect(
            lambda after, count: service.subscriptions.list(
                namespace, group=group, topic=topic, after=after, limit=count
            ),
            first=0,
            count_max=limit,
        )
    )
    columns = ["group", "topic", "event_code", "mode", "expression"]
    if any(each.requires for each in found):
        columns.append("requires")
    print_rows(found, columns, as_json=as_json, empty="No subscriptions.")


@app.command("delete")
def delete(
    group: _Group,
    topic: _Topic,
    event_code: _EventCode = "*",
    no_wait: NoWait = False,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Unsubscribe a group from a message type.

    Example: msgcenter subscription delete SG_POINTS TP_TRADE EC_PAID
    """
    change(
        lambda service: service.subscriptions.delete(namespace, group, topic, event_code),
        lambda gone: f"The subscription of {gone.group} to {gone.topic}/{gone.event_code} is deleted.",
        as_json=as_json,
        wait=not no_wait,
    )
