"""`msgcenter instance`: the instances that are connected."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from msgbroker.client.connect.inspection import WhichInstances
from msgconsole.cli.acting import act
from msgconsole.cli.connections import Many, shown_age, shown_rate, tell_cut, tell_unanswered
from msgconsole.cli.options import AsJson, OfGroup, OfNamespace
from msgconsole.cli.output import plain, print_json, print_rows
from msgconsole.operations.connected import InstanceRow, list_instances

app = typer.Typer(no_args_is_help=True)

_COLUMNS: Final = ("group", "instance_id", "since", "unsettled", "rate", "last_verdict", "broker")
_MORE_COLUMNS: Final = ("host", "client_version", "credit", "paused", "pulls")


@app.callback()
def _instance() -> None:
    """Have commands of its own, even while there is a single one."""


@app.command("list")
def list_(
    group: OfGroup = None,
    namespace: OfNamespace = None,
    instance_id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Only this instance.")] = None,
    is_wide: Annotated[
        bool, typer.Option("--wide", help="Also host, client's version, credit, and whether it has paused or pulls.")
    ] = False,
    limit: Many = 100,
    as_json: AsJson = False,
) -> None:
    """List the instances of subscriber groups that are connected, as the brokers' memories have them.

    `since`: when it connected, in UTC. `unsettled`: the messages that it holds and has not answered; `rate`: those a
    second that its verdicts decided in the last 10 to 20 s; `last verdict`: with how long ago; `credit` (--wide):
    how many messages it may hold.
    A broker that does not answer within 3 s is named on standard error: its instances are missing.

    Example: msgcenter instance list --group SG_POINTS
    """
    which = WhichInstances(namespace or "", group or "", instance_id or "")
    report = act(lambda stores: list_instances(stores, which, limit))
    if as_json:
        print_json(report)
    else:
        _print_table(report.instances, is_wide=is_wide)
    if report.has_more:
        tell_cut(limit)
    tell_unanswered(report.unanswered)


def _print_table(instances: Sequence[InstanceRow], *, is_wide: bool) -> None:
    now = datetime.now(UTC)
    rows = [
        {
            **plain(row),
            "rate": shown_rate(row.settled_per_second),
            "last_verdict": _verdict(row, now),
        }
        for row in instances
    ]
    columns = ["namespace"] if len({row.namespace for row in instances}) > 1 else []
    columns += [*_COLUMNS, *(_MORE_COLUMNS if is_wide else ())]
    print_rows(rows, columns, as_json=False, empty="No such instance is connected.")


def _verdict(row: InstanceRow, now: datetime) -> str:
    if row.last_verdict is None or row.last_verdict_at is None:
        return "-"
    return f"{row.last_verdict} {shown_age(row.last_verdict_at, now)}"
