"""`msgcenter lag`: how far each group is behind."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from msgconsole.cli.options import AsJson, OfGroup, OfNamespace, OfTopic
from msgconsole.cli.output import print_rows
from msgconsole.local import places
from msgconsole.operations.lag_report import LagOf, QueueLag, TopicLag, read_lag, sum_by_topic


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

    Example: msgcenter lag --group SG_POINTS --by-queue
    """
    wanted = LagOf(namespace, group, topic)
    queues = asyncio.run(read_lag(places.confdb_url(), places.msgdb_url(), wanted))
    rows: list[QueueLag] | list[TopicLag] = queues if by_queue else sum_by_topic(queues)
    columns = ["namespace"] if len({row.namespace for row in rows}) > 1 else []
    columns += ["group", "topic"]
    if by_queue:
        columns += ["queue_id"]
    columns += ["behind", "redeliveries", "alarms", "oldest_seconds", "broker" if by_queue else "dead_letters"]
    if any(row.failures for row in rows):
        columns += ["failures", "last_failed_header", "last_failed_at"]
    print_rows(rows, columns, as_json=as_json, empty=_nothing(wanted), long=["last_failed_header"])


def _nothing(wanted: LagOf) -> str:
    who = "No group subscribes" if wanted.group is None else f"Group {wanted.group} does not subscribe"
    return f"{who} to {wanted.topic or 'anything'}."
