"""`msgcenter instance`: the instances that are connected, and disconnecting one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from msgbroker.client.connect.inspection import WhichInstances
from msgbroker.contract.errors import ThingNotFoundError
from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.carrying_out.service import actor
from msgconsole.cli.commands.watching.connections import Many, check_taken, shown_age, shown_rate
from msgconsole.cli.printing.incomplete import tell_cut, tell_unanswered
from msgconsole.cli.printing.output import plain, print_json, print_line, print_rows
from msgconsole.cli.printing.waiting import tell_waiting
from msgconsole.cli.typed.options import (
    DEFAULT_NAMESPACE,
    AsJson,
    DryRun,
    Namespace,
    OfGroup,
    OfNamespace,
    Reason,
    require_reason,
)
from msgconsole.operations.brokers.connected import InstanceRow, list_instances
from msgconsole.operations.brokers.disconnecting import disconnect, plan_disconnect

app = typer.Typer(no_args_is_help=True)

_COLUMNS: Final = ("group", "instance_id", "since", "unsettled", "rate", "last_verdict", "broker")
_DONE_COLUMNS: Final = ("group", "instance_id", "broker", "outcome")
_MORE_COLUMNS: Final = ("host", "client_version", "credit", "paused", "pulls")


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


@app.command("disconnect")
def disconnect_(
    instance_id: Annotated[str, typer.Argument(metavar="ID", help="The instance, as listed.")],
    group: OfGroup = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    reason: Reason = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """End the connections of an instance: one for each group that it is connected for, or that of --group.

    What it holds goes to others of its group at once; what it had begun counts as an attempt that failed. It is ended
    once, and the client of an instance that lives connects again by itself, to the same broker or another one: to keep
    it away, stop its process, or pause the group. The command waits until each broker has done it, or has said that
    the connection is not there any more; what a broker has not done after 10 s it does not do any more.

    Example: msgcenter instance disconnect shop-1:4711 --dry-run
    """
    why = require_reason(reason, dry_run=dry_run)
    which = WhichInstances(namespace, group or "", instance_id)
    plan = act(lambda stores: plan_disconnect(stores, which))
    tell_unanswered(plan.unanswered)
    if not plan.connections:
        raise ThingNotFoundError("connected instance", instance_id, namespace=namespace)
    if dry_run:
        if as_json:
            print_json(plan)
        else:
            _print_table(plan.connections, is_wide=False)
            print_line(f"{len(plan.connections)} would be ended. Nothing was changed.")
        return
    done = act(
        lambda stores: disconnect(
            stores, plan.connections, actor=actor(), reason=why, on_waiting=tell_waiting(is_done=False)
        )
    )
    print_rows(done, _DONE_COLUMNS, as_json=as_json, empty="")
    check_taken(done)


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
    least = () if is_wide else ("broker", "rate", "last_verdict", "since")
    print_rows(rows, columns, as_json=False, empty="No such instance is connected.", least=least)


def _verdict(row: InstanceRow, now: datetime) -> str:
    if row.last_verdict is None or row.last_verdict_at is None:
        return "-"
    return f"{row.last_verdict} {shown_age(row.last_verdict_at, now)}"
