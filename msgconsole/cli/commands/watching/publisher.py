"""`msgcenter publisher`: the publishers that are connected."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.commands.watching.connections import Many, shown_rate
from msgconsole.cli.printing.incomplete import tell_cut, tell_unanswered
from msgconsole.cli.printing.output import plain, print_json, print_rows
from msgconsole.cli.typed.options import AsJson, OfNamespace
from msgconsole.operations.brokers.connected import list_publishers

app = typer.Typer(no_args_is_help=True)

_COLUMNS: Final = ("publisher_group", "host", "client_version", "since", "unanswered_frames", "rate", "broker")


@app.callback()
def _publisher() -> None:
    """Have commands of its own, even while there is a single one."""


@app.command("list")
def list_(
    group: Annotated[str | None, typer.Option("--group", help="Only of this publisher group.")] = None,
    namespace: OfNamespace = None,
    limit: Many = 100,
    as_json: AsJson = False,
) -> None:
    """List the publishers that have a stream to a broker, as the brokers' memories have them.

    `rate`: the messages a second that came from it in the last 10 to 20 s; `unanswered frames`: 16 at most. Who
    publishes by single calls only is not connected, and not listed. `since` is in UTC.
    A broker that does not answer within 3 s is named on standard error: its publishers are missing.

    Example: msgcenter publisher list --group PG_SHOP
    """
    report = act(lambda stores: list_publishers(stores, namespace or "", group or "", limit))
    if as_json:
        print_json(report)
    else:
        rows = [{**plain(row), "rate": shown_rate(row.messages_per_second)} for row in report.publishers]
        columns = ["namespace"] if len({row.namespace for row in report.publishers}) > 1 else []
        least = ("client_version", "rate", "broker", "since")
        nothing = "No such publisher is connected."
        print_rows(rows, [*columns, *_COLUMNS], as_json=False, empty=nothing, least=least)
    if report.has_more:
        tell_cut(limit)
    tell_unanswered(report.unanswered)
