"""The arguments and options that several commands share, each defined once."""

from __future__ import annotations

from typing import Annotated

import typer

from msgbroker.contract.names import DEFAULT_NAMESPACE

Namespace = Annotated[
    str, typer.Option("--namespace", "-n", envvar="MSGCENTER_NAMESPACE", help="The tenant the names belong to.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Broker = Annotated[
    str | None,
    typer.Option("--broker", help="host:port. Default: $MSGCENTER_BROKER, the running `msgcenter up`, 127.0.0.1:7400."),
]
Description = Annotated[str | None, typer.Option("--description", help="For people.")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]
SubscriberGroup = Annotated[str, typer.Argument(metavar="GROUP", help="The subscriber group's name.")]
EventCodeOrAll = Annotated[str, typer.Argument(metavar="EVENT_CODE", help="The event code's name, or '*' for all.")]
OfNamespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Only of this namespace.")]
OfGroup = Annotated[str | None, typer.Option("--group", help="Only of this subscriber group.")]
OfTopic = Annotated[str | None, typer.Option("--topic", help="Only of this topic.")]
OfEventCode = Annotated[str | None, typer.Option("--event-code", help="Only of this event code.")]
OfKey = Annotated[str | None, typer.Option("--key", help="Only of this key.")]
OfActor = Annotated[str | None, typer.Option("--actor", help="Only by whom this is part of the name of: a user's.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many at most.")]
IfNotExists = Annotated[
    bool,
    typer.Option(
        "--if-not-exists", help="Where it exists already, do nothing; refused where it differs from what is given here."
    ),
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait until every live broker routes by it.")]
Rate = Annotated[float, typer.Option("--rate", help="So many messages a second at most.")]
DoNotFollow = Annotated[bool, typer.Option("--no-wait", help="Do not wait until the job has ended.")]
Force = Annotated[bool, typer.Option("--force", help="Though it is in use: --dry-run says by whom.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would happen; nothing is changed.")]
Reason = Annotated[
    str | None, typer.Option("--reason", help="Why: it is written down, with who you are. Not needed for a dry run.")
]
ReasonAlways = Annotated[str | None, typer.Option("--reason", help="Why: it is written down, with who you are.")]
ReasonToDelete = Annotated[
    str | None, typer.Option("--reason", help="Why: the audit trail keeps it, with who you are. Needed with --force.")
]
ReasonOfChange = Annotated[
    str | None, typer.Option("--reason", help="Why: the audit trail keeps it, with who you are.")
]
Headers = Annotated[
    list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="Only with this header; may be repeated.")
]


def require_reason(reason: str | None, *, dry_run: bool | None = None) -> str:
    """Return the reason that an act was given; refuse one without. *dry_run*: None where the command has none.

    Raises InvalidSettingError for one that is not written down, in a dry run as well.
    """
    if reason is None and not dry_run:
        instead = "" if dry_run is None else " (or see what would happen, with --dry-run)"
        raise typer.BadParameter(f"say why: it is written down, with who you are{instead}", param_hint="--reason")
    if reason is None:
        return ""
    # Commands without an act do not need what the store is asked with.
    from msgdb.acts import said

    return said("reason", reason)


def read_headers(given: list[str] | None) -> dict[str, str]:
    """Return the headers that were typed as NAME=VALUE."""
    headers: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not name=value", param_hint="--header")
        headers[name] = value
    return headers


__all__ = [
    "DEFAULT_NAMESPACE",
    "AsJson",
    "Broker",
    "Description",
    "DoNotFollow",
    "DryRun",
    "EventCodeOrAll",
    "Force",
    "GroupName",
    "Headers",
    "IfNotExists",
    "Limit",
    "Namespace",
    "NoWait",
    "OfActor",
    "OfEventCode",
    "OfGroup",
    "OfKey",
    "OfNamespace",
    "OfTopic",
    "Rate",
    "Reason",
    "ReasonAlways",
    "ReasonOfChange",
    "ReasonToDelete",
    "SubscriberGroup",
    "Topic",
    "read_headers",
    "require_reason",
]
