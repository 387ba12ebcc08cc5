"""`msgcenter namespace`: the tenants."""

from __future__ import annotations

from typing import Annotated

import typer

from msgconsole.cli.carrying_out.service import change, look_up_all
from msgconsole.cli.printing.output import print_rows
from msgconsole.cli.typed.options import AsJson, Description, Limit, NoWait, ReasonOfChange

app = typer.Typer(no_args_is_help=True)

_Name = Annotated[str, typer.Argument(metavar="NAMESPACE", help="The namespace's name.")]


@app.command("create")
def create(name: _Name, description: Description = None, no_wait: NoWait = False, as_json: AsJson = False) -> None:
    """Register a namespace.

    Example: msgcenter namespace create shop
    """
    change(
        lambda service: service.namespaces.create(name, description=description or ""),
        lambda made: f"Namespace {made.name} is registered.",
        as_json=as_json,
        wait=not no_wait,
    )


@app.command("list")
def list_(limit: Limit = 1_000, as_json: AsJson = False) -> None:
    """List the namespaces.

    Example: msgcenter namespace list --json
    """
    found = look_up_all(
        lambda service, after, count: service.namespaces.list(after=after, limit=count), first="", count_max=limit
    )
    print_rows(found, ("name", "description", "created_at"), as_json=as_json, empty="No namespaces.")


@app.command("delete")
def delete(name: _Name, reason: ReasonOfChange = None, no_wait: NoWait = False, as_json: AsJson = False) -> None:
    """Delete a namespace that has no topics and groups any more.

    Example: msgcenter namespace delete shop
    """
    change(
        lambda service: service.namespaces.delete(name),
        lambda gone: f"Namespace {gone.name} is deleted.",
        as_json=as_json,
        wait=not no_wait,
        reason=reason,
    )
