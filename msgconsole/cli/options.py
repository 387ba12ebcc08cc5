"""The options that many commands share, each defined once."""

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
Limit = Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many at most.")]
IfNotExists = Annotated[
    bool,
    typer.Option(
        "--if-not-exists", help="Where it exists already, do nothing; refused where it differs from what is given here."
    ),
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait until every live broker routes by it.")]

__all__ = ["DEFAULT_NAMESPACE", "AsJson", "Broker", "Description", "IfNotExists", "Limit", "Namespace", "NoWait"]
