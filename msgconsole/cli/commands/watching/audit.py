"""`msgcenter audit`: who changed what."""

from __future__ import annotations

from typing import Annotated

import typer

from msgconsole.cli.carrying_out.service import look_up
from msgconsole.cli.printing.incomplete import tell_more
from msgconsole.cli.printing.output import print_rows
from msgconsole.cli.typed.options import AsJson, Limit, OfNamespace


def command(
    kind: Annotated[str | None, typer.Option("--kind", help="Only of this kind: topic, subscription, ...")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Only of the thing of this name.")] = None,
    namespace: OfNamespace = None,
    before: Annotated[int | None, typer.Option("--before", help="Only changes older than this id.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """Show who changed what in the configuration, and why, the newest first. Times are UTC; --json tells more.

    Example: msgcenter audit --kind topic --name TP_TRADE --json
    """
    page = look_up(
        lambda service: service.audit.list(namespace=namespace, kind=kind, name=name, after=before, limit=limit)
    )
    columns = ("audit_id", "at", "actor", "action", "name", "reason")
    print_rows(page.items, columns, as_json=as_json, empty="No changes.")
    if page.next_after is not None:
        tell_more(page.items, limit, f"go on with --before {page.next_after}")
