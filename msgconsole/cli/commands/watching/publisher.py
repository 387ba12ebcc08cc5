"""`msgcenter publisher`: the publishers that are connected, and disconnecting one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from msgbroker.contract.errors import ThingNotFoundError
from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.carrying_out.service import actor
from msgconsole.cli.commands.watching.connections import Many, check_taken, shown_rate
from msgconsole.cli.printing.incomplete import tell_cut, tell_unanswered
from msgconsole.cli.printing.output import plain, print_json, print_line, print_rows
from msgconsole.cli.printing.waiting import tell_waiting
from msgconsole.cli.typed.options import (
    DEFAULT_NAMESPACE,
    AsJson,
    DryRun,
    Namespace,
    OfNamespace,
    Reason,
    require_reason,
)
from msgconsole.operations.brokers.connected import PublisherRow, list_publishers
from msgconsole.operations.brokers.disconnecting import disconnect_publisher, plan_publisher_disconnect

app = typer.Typer(no_args_is_help=True)

_COLUMNS: Final = ("publisher_group", "id", "host", "client_version", "since", "unanswered_frames", "rate", "broker")
_DONE_COLUMNS: Final = ("publisher_group", "publisher_id", "broker", "outcome")
_DIGITS_SHOWN: Final = 8


@app.command("list")
def list_(
    group: Annotated[str | None, typer.Option("--group", help="Only of this publisher group.")] = None,
    namespace: OfNamespace = None,
    limit: Many = 100,
    as_json: AsJson = False,
) -> None:
    """List the publishers that have a stream to a broker, as the brokers' memories have them.

    `id`: the first digits; --json tells all of it. `rate`: the messages a second that came from it in the last 10 to
    20 s; `unanswered frames`: 16 at most. Who publishes by single calls only is not connected, and not listed. `since`
    is in UTC.
    A broker that does not answer within 3 s is named on standard error: its publishers are missing.

    Example: msgcenter publisher list --group PG_SHOP
    """
    report = act(lambda stores: list_publishers(stores, namespace or "", group or "", limit))
    if as_json:
        print_json(report)
    else:
        _print_table(report.publishers)
    if report.has_more:
        tell_cut(limit)
    tell_unanswered(report.unanswered)


@app.command("disconnect")
def disconnect_(
    publisher_id: Annotated[str, typer.Argument(metavar="ID", help="The publisher, as listed: digits it begins with.")],
    namespace: Namespace = DEFAULT_NAMESPACE,
    reason: Reason = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """End the stream of a publisher. What was taken in of it is stored and answered.

    It is ended once: the client of a publisher that lives goes to another broker, or connects again where there is
    none, and sends what was not answered: all is stored once. To keep it away, stop its process; to take nothing of a
    topic from anybody, `topic update --closed`. The command waits as `instance disconnect` does.

    Example: msgcenter publisher disconnect 7f3a91c2 --dry-run
    """
    why = require_reason(reason, dry_run=dry_run)
    plan = act(lambda stores: plan_publisher_disconnect(stores, namespace, publisher_id))
    tell_unanswered(plan.unanswered)
    if not plan.connections:
        raise ThingNotFoundError("connected publisher", publisher_id, namespace=namespace)
    if dry_run:
        if as_json:
            print_json(plan)
        else:
            _print_table(plan.connections)
            print_line(f"{len(plan.connections)} would be ended. Nothing was changed.")
        return
    done = act(
        lambda stores: disconnect_publisher(
            stores, plan.connections, actor=actor(), reason=why, on_waiting=tell_waiting(is_done=False)
        )
    )
    print_rows(done, _DONE_COLUMNS, as_json=as_json, empty="")
    check_taken(done)


def _print_table(publishers: Sequence[PublisherRow]) -> None:
    rows = [
        {**plain(row), "id": row.publisher_id[:_DIGITS_SHOWN], "rate": shown_rate(row.messages_per_second)}
        for row in publishers
    ]
    columns = ["namespace"] if len({row.namespace for row in publishers}) > 1 else []
    least = ("client_version", "rate", "broker", "since")
    nothing = "No such publisher is connected."
    print_rows(rows, [*columns, *_COLUMNS], as_json=False, empty=nothing, least=least)
