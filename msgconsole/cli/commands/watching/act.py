"""`msgcenter act`: who did what to messages, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from msgconsole.cli.carrying_out.service import check_known
from msgconsole.cli.carrying_out.store import read_store
from msgconsole.cli.printing.incomplete import tell_more
from msgconsole.cli.printing.output import plain, print_line, print_rows, print_thing, shown
from msgconsole.cli.typed.options import AsJson, Limit, OfActor, OfNamespace
from msgconsole.cli.typed.times import Since, Until
from msgconsole.operations.times import check_order
from msgdb.acts import Act, get_act, list_acts

app = typer.Typer(no_args_is_help=True)

_COLUMNS: Final = ("act_id", "at", "actor", "action", "thing", "reason")
_WITH_NAMESPACE: Final = ("act_id", "at", "actor", "action", "namespace", "thing", "reason")
_NOT_NOTED: Final = "?"


@app.command("list")
def list_(
    action: Annotated[
        str, typer.Option("--action", help="Only those whose action begins like this: `archive.`, ...")
    ] = "",
    actor: OfActor = None,
    since: Since = None,
    until: Until = None,
    namespace: OfNamespace = None,
    before: Annotated[int | None, typer.Option("--before", help="Only acts older than this id.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List what operators did to messages, and why, the newest first. Kept for a year. Times are UTC.

    What they did to the configuration is in `msgcenter audit`.

    Those that concern the whole center (`archive.`, `lanes.`) have no namespace; of some that versions of before wrote
    nobody noted it (`?`). Both are shown only without --namespace.

    Example: msgcenter act list --action archive. --since yesterday
    """
    check_order(since, until)
    found = read_store(
        lambda connection: list_acts(
            connection,
            namespace=namespace,
            action=action,
            actor=actor or "",
            since=since,
            until=until,
            before_id=before,
            limit=limit,
        )
    )
    if not found:
        check_known(namespace)
    rows = [_record(each) for each in found]
    if not as_json:
        rows = [{**row, "namespace": _shown_namespace(each)} for row, each in zip(rows, found, strict=True)]
    print_rows(rows, _columns(rows), as_json=as_json, empty="No acts.", long=["reason"], least=["actor"])
    tell_more(found, limit, f"go on with --before {found[-1].act_id if found else 0}")


@app.command("show")
def show(
    act_id: Annotated[int, typer.Argument(metavar="ID", help="As listed.")],
    namespace: OfNamespace = None,
    as_json: AsJson = False,
) -> None:
    """Show an act with all that was noted of it.

    Example: msgcenter act show 3
    """
    found = read_store(lambda connection: get_act(connection, act_id, namespace=namespace))
    record = _record(found)
    if as_json:
        print_thing(record, as_json=True)
        return
    del record["is_namespace_noted"]
    record["namespace"] = _shown_namespace(found)
    detail = record.pop("detail")
    print_thing(record, as_json=False)
    if detail:
        print_line("Detail:")
        print_thing({name: _on_lines(detail[name]) for name in sorted(detail)}, as_json=False)


def _record(found: Act) -> dict[str, Any]:
    record: dict[str, Any] = plain(found)
    return record | {"is_namespace_noted": found.is_namespace_noted}


def _shown_namespace(found: Act) -> str:
    if found.namespace is None:
        return "-" if found.is_namespace_noted else _NOT_NOTED
    return found.namespace


def _columns(rows: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    return _WITH_NAMESPACE if len({row["namespace"] for row in rows}) > 1 else _COLUMNS


def _on_lines(value: object) -> str:
    """Return what was noted of an act: what is nested, each of it on a line of its own."""
    if isinstance(value, dict):
        return "\n".join(f"{name}={shown(value[name])}" for name in sorted(value)) or "-"
    if isinstance(value, list) and any(isinstance(each, (list, dict)) for each in value):
        return "\n".join(map(shown, value))
    return shown(value) or "-"
