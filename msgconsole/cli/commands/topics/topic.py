"""`msgcenter topic`: register topics, and change them."""

from __future__ import annotations

from typing import Annotated

import typer

from msgbroker.contract import limits
from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.carrying_out.if_not_exists import Existing
from msgconsole.cli.carrying_out.service import carry_out, change, check_reason, deleted_by, look_up, look_up_all
from msgconsole.cli.commands.topics import looks, topic_update
from msgconsole.cli.commands.topics.options import TraceRate
from msgconsole.cli.printing.in_use import tell_use
from msgconsole.cli.printing.output import print_rows, print_thing
from msgconsole.cli.typed.given import is_given
from msgconsole.cli.typed.options import (
    DEFAULT_NAMESPACE,
    AsJson,
    Description,
    DryRun,
    Force,
    IfNotExists,
    Limit,
    Namespace,
    NoWait,
    ReasonToDelete,
    Topic,
)
from msgconsole.operations.configuration.deletions import delete_topic, find_topic_use

app = typer.Typer(no_args_is_help=True)

_FIELDS = {
    "queues": "queue_count",
    "body_bytes_max": "body_bytes_max",
    "is_open": "is_open",
    "trace_rate": "trace_rate",
    "description": "description",
}
"""The fields of a topic that the options of `create` set."""
_COLUMNS = ("name", "queue_count", "body_bytes_max", "is_open", "is_closed", "stress_refused", "description")


@app.command("create")
def create(
    context: typer.Context,
    name: Topic,
    queues: Annotated[
        int, typer.Option("--queues", min=1, max=limits.QUEUES_MAX, help="How many queues. May be raised later.")
    ] = limits.QUEUES_DEFAULT,
    body_bytes_max: Annotated[
        int,
        typer.Option(
            "--body-bytes-max", min=1, max=limits.BODY_BYTES_CEILING, help="The largest body it takes, in bytes."
        ),
    ] = limits.BODY_BYTES_DEFAULT,
    is_open: Annotated[bool, typer.Option("--open", help="Unknown event codes register themselves.")] = False,
    trace_rate: TraceRate = None,
    description: Description = None,
    if_not_exists: IfNotExists = False,
    namespace: Namespace = DEFAULT_NAMESPACE,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Register a topic.

    Example: msgcenter topic create TP_TRADE --queues 8 --if-not-exists
    """
    wanted = {field: context.params[option] for option, field in _FIELDS.items() if is_given(context, option)}
    existing = Existing(namespace, "topic", name, lambda service: service.topics.get(namespace, name), wanted)
    change(
        lambda service: service.topics.create(
            namespace,
            name,
            queue_count=queues,
            body_bytes_max=body_bytes_max,
            is_open=is_open,
            trace_rate=limits.TRACE_RATE_DEFAULT if trace_rate is None else trace_rate,
            description=description or "",
        ),
        lambda made: f"Topic {made.name} is registered, with {made.queue_count} queues.",
        as_json=as_json,
        wait=not no_wait,
        existing=existing if if_not_exists else None,
    )


@app.command("list")
def list_(namespace: Namespace = DEFAULT_NAMESPACE, limit: Limit = 1_000, as_json: AsJson = False) -> None:
    """List the topics.

    Example: msgcenter topic list --json
    """
    found = look_up_all(
        lambda service, after, count: service.topics.list(namespace, after=after, limit=count),
        first="",
        count_max=limit,
    )
    nothing = "No topics: msgcenter topic create NAME registers one."
    print_rows(found, _COLUMNS, as_json=as_json, empty=nothing, least=["body_bytes_max", "stress_refused"])


@app.command("show")
def show(name: Topic, namespace: Namespace = DEFAULT_NAMESPACE, as_json: AsJson = False) -> None:
    """Show a topic.

    Example: msgcenter topic show TP_TRADE
    """
    print_thing(look_up(lambda service: service.topics.get(namespace, name)), as_json=as_json)


@app.command("delete")
def delete(
    name: Topic,
    force: Force = False,
    dry_run: DryRun = False,
    reason: ReasonToDelete = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Delete a topic. Refused (IN_USE) while a group subscribes to it; by force it goes with its subscriptions.

    Example: msgcenter topic delete TP_TRADE --dry-run
    """
    if dry_run:
        check_reason(reason)
        tell_use(act(lambda stores: find_topic_use(stores, namespace, name)), as_json=as_json)
        return
    by = deleted_by(reason, force=force)
    carry_out(
        lambda stores: delete_topic(stores, namespace, name, by=by),
        lambda gone: f"Topic {gone.name} is deleted.",
        as_json=as_json,
        wait=not no_wait,
    )


# Behind the others, as --help lists them in this order.
app.command("update")(topic_update.update)
app.command("tail")(looks.tail)
app.command("headers")(looks.headers)
