"""`msgcenter event-code`: the kinds of events inside a topic.

It speaks as the other things' commands do, `create` and `delete`; `add` and `remove`, of old, work as well and are not
listed.
"""

from __future__ import annotations

from typing import Annotated

import typer

from msgconsole.cli.carrying_out.if_not_exists import Existing
from msgconsole.cli.carrying_out.service import change, look_up_all
from msgconsole.cli.printing.output import print_rows
from msgconsole.cli.typed.options import (
    DEFAULT_NAMESPACE,
    AsJson,
    IfNotExists,
    Limit,
    Namespace,
    NoWait,
    ReasonOfChange,
    Topic,
)

app = typer.Typer(no_args_is_help=True)

_Name = Annotated[str, typer.Argument(metavar="EVENT_CODE", help="The event code's name.")]


@app.command("create")
@app.command("add", hidden=True)
def create(
    topic: Topic,
    name: _Name,
    if_not_exists: IfNotExists = False,
    namespace: Namespace = DEFAULT_NAMESPACE,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Register an event code of a topic.

    Example: msgcenter event-code create TP_TRADE EC_PAID --if-not-exists
    """
    existing = Existing(
        namespace, "event_code", f"{topic}/{name}", lambda service: service.event_codes.get(namespace, topic, name)
    )
    change(
        lambda service: service.event_codes.add(namespace, topic, name),
        lambda made: f"Event code {made.topic}/{made.name} is registered.",
        as_json=as_json,
        wait=not no_wait,
        existing=existing if if_not_exists else None,
    )


@app.command("list")
def list_(
    topic: Topic, namespace: Namespace = DEFAULT_NAMESPACE, limit: Limit = 1_000, as_json: AsJson = False
) -> None:
    """List a topic's event codes.

    Example: msgcenter event-code list TP_TRADE
    """
    found = look_up_all(
        lambda service, after, count: service.event_codes.list(namespace, topic, after=after, limit=count),
        first="",
        count_max=limit,
    )
    print_rows(found, ("topic", "name", "created_at"), as_json=as_json, empty=f"{topic} has no event codes.")


@app.command("delete")
@app.command("remove", hidden=True)
def delete(
    topic: Topic,
    name: _Name,
    reason: ReasonOfChange = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Delete an event code that no group subscribes to by name.

    Example: msgcenter event-code delete TP_TRADE EC_PAID
    """
    change(
        lambda service: service.event_codes.remove(namespace, topic, name),
        lambda gone: f"Event code {gone.topic}/{gone.name} is deleted.",
        as_json=as_json,
        wait=not no_wait,
        reason=reason,
    )
