"""`msgcenter audit`: who changed what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import typer

from confdb.services import WantedChanges
from msgconsole.cli.carrying_out.service import look_up
from msgconsole.cli.printing.output import print_rows, tell_more
from msgconsole.cli.typed.options import AsJson, Limit, OfNamespace

_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "namespace": ("namespace",),
    "topic": ("topic",),
    "event-code": ("event_code",),
    "group": ("subscriber_group", "publisher_group"),
    "subscription": ("subscription",),
    "stress": ("stress_rule", "stress_whitelist"),
}
"""What the commands call the kinds of things, and the trail."""


def command(
    kind: Annotated[str | None, typer.Option("--kind", help=f"Only of this kind: {', '.join(_KINDS)}.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Only of the thing of this name.")] = None,
    namespace: OfNamespace = None,
    before: Annotated[int | None, typer.Option("--before", help="Only changes older than this id.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """Show who changed what in the configuration, and why, the newest first. Times are UTC; --json tells more.

    Example: msgcenter audit --kind topic --name TP_TRADE --json
    """
    wanted = WantedChanges(namespace=namespace, kinds=None if kind is None else _kinds(kind), name=name)
    page = look_up(lambda service: service.audit.list(wanted, after=before, limit=limit))
    columns = ("audit_id", "at", "actor", "action", "name", "reason")
    print_rows(page.items, columns, as_json=as_json, empty="No changes.")
    if page.next_after is not None:
        tell_more(page.items, limit, f"go on with --before {page.next_after}")


def _kinds(kind: str) -> tuple[str, ...]:
    """Return what the trail calls a kind of things, which is taken by that word as well: `--json` has it."""
    if kind in _KINDS:
        return _KINDS[kind]
    if any(kind in kinds for kinds in _KINDS.values()):
        return (kind,)
    raise typer.BadParameter(f"{kind!r} is none of {', '.join(_KINDS)}", param_hint="--kind")
