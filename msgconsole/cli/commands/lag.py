"""`msgcenter lag`: how far each group is behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from msgconsole.cli.acting import act
from msgconsole.cli.options import AsJson, OfGroup, OfNamespace, OfTopic
from msgconsole.cli.output import print_rows, visible
from msgconsole.operations.lag_report import LagOf, QueueLag, TopicLag, read_lag, sum_by_topic
from msgdb.archive.records import WaitingDay

_DAY_SECONDS: Final = 86_400


def command(
    group: OfGroup = None,
    topic: OfTopic = None,
    namespace: OfNamespace = None,
    by_queue: Annotated[bool, typer.Option("--by-queue", help="Each queue by itself, with its broker.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how far each group is behind, as of its last checkpoint.

    `behind` counts messages of the topic that are not settled. Those that no subscription of the group selects count as
    well, until a broker has read past them; a group without an instance reads nothing. `redeliveries` counts those that
    wait for another attempt; they are not in `behind`.
    `alarms`: what is wrong, e.g. REDELIVERIES_FULL: so many of them wait on one queue (10,000) that no more is read
    from it until some are settled. `msgcenter alarm list` says more.
    `failures`, shown where there are any: how often the group's expressions failed on messages of the topic, which is
    no match; with the header that was missing the last time. `msgcenter subscription show` says more.
    Where the archive is required, the oldest day that is not archived yet is told on standard error.

    Example: msgcenter lag --group SG_POINTS --by-queue
    """
    wanted = LagOf(namespace, group, topic)
    report = act(lambda stores: read_lag(stores, wanted))
    rows: Sequence[QueueLag | TopicLag] = report.queues if by_queue else sum_by_topic(report.queues)
    columns = ["namespace"] if len({row.namespace for row in rows}) > 1 else []
    columns += ["group", "topic"]
    if by_queue:
        columns += ["queue_id"]
    columns += ["behind", "redeliveries", "alarms", "oldest_seconds", "broker" if by_queue else "dead_letters"]
    if any(row.failures for row in rows):
        columns += ["failures", "last_failed_header", "last_failed_at"]
    print_rows(rows, columns, as_json=as_json, empty=_nothing(wanted), long=["last_failed_header"])
    if report.waiting is not None:
        typer.echo(_not_archived(report.waiting), err=True)


def _not_archived(waiting: WaitingDay) -> str:
    since = f"{waiting.waits_seconds / _DAY_SECONDS:.1f} days"
    return f"Not archived yet: {waiting.day} of {waiting.table}, which was over {since} ago: {visible(waiting.reason)}."


def _nothing(wanted: LagOf) -> str:
    who = "No group subscribes" if wanted.group is None else f"Group {wanted.group} does not subscribe"
    return f"{who} to {wanted.topic or 'anything'}."
