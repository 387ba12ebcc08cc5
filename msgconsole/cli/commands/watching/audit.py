"""`msgcenter audit`: who changed what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from confdb.services import AuditView, WantedChanges
from msgconsole.cli.carrying_out.service import look_up
from msgconsole.cli.printing.incomplete import tell_more
from msgconsole.cli.printing.output import plain, print_json, print_rows, shown
from msgconsole.cli.typed.options import AsJson, Limit, OfActor, OfNamespace
from msgconsole.cli.typed.times import Since, Until
from msgconsole.operations.times import check_order

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
    actor: OfActor = None,
    since: Since = None,
    until: Until = None,
    namespace: OfNamespace = None,
    before: Annotated[int | None, typer.Option("--before", help="Only changes older than this id.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """Show who changed what in the configuration, from what to what, and why, the newest first. Times are UTC.

    --json has each thing as it was before and after.

    Example: msgcenter audit --kind topic --name TP_TRADE --since yesterday
    """
    check_order(since, until)
    wanted = WantedChanges(
        namespace=namespace,
        kinds=None if kind is None else _kinds(kind),
        name=name,
        actor=actor,
        since=since,
        until=until,
    )
    page = look_up(lambda service: service.audit.list(wanted, after=before, limit=limit))
    if as_json:
        print_json(page.items)
    else:
        rows = [{**plain(each), "changed": _changed(each)} for each in page.items]
        print_rows(rows, _columns(rows), as_json=False, empty="No changes.", least=["actor"])
    if page.next_after is not None:
        tell_more(page.items, limit, f"go on with --before {page.next_after}")


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns that are worth their room."""
    columns = ["audit_id", "at", "actor", "action"]
    if len({row["namespace"] for row in rows}) > 1:
        columns.append("namespace")
    columns.append("name")
    if any(row["changed"] for row in rows):
        columns.append("changed")
    return [*columns, "reason"]


def _changed(entry: AuditView) -> str:
    """Return what an update changed, from what to what; of what was created or deleted nothing: all of it was."""
    if entry.before is None or entry.after is None:
        return ""
    before, after = entry.before, entry.after
    return ", ".join(
        f"{name.replace('_', ' ')}: {shown(before.get(name))} -> {shown(after.get(name))}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    )


def _kinds(kind: str) -> tuple[str, ...]:
    """Return what the trail calls a kind of things, which is taken by that word as well: `--json` has it."""
    if kind in _KINDS:
        return _KINDS[kind]
    if any(kind in kinds for kinds in _KINDS.values()):
        return (kind,)
    raise typer.BadParameter(f"{kind!r} is none of {', '.join(_KINDS)}", param_hint="--kind")
