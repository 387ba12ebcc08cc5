"""`msgcenter lag`: how far each group is behind, and was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.printing.incomplete import tell_not_all_deleted
from msgconsole.cli.printing.lengths import length
from msgconsole.cli.printing.output import plain, print_json, print_line, print_rows, visible
from msgconsole.cli.typed.options import DEFAULT_NAMESPACE, AsJson, OfGroup, OfNamespace, OfTopic
from msgconsole.cli.typed.times import Since, Until, hour_before
from msgconsole.operations.figures.backlog import BacklogReport, read_backlog
from msgconsole.operations.figures.lag import LagReport, QueueLag, TopicLag, read_lag, sum_by_topic
from msgconsole.operations.figures.wanted import WantedFigures
from msgdb.archive.records import WaitingDay

_DAY_SECONDS: Final = 86_400

_LEAST: Final = (
    "last_failed_at",
    "last_failed_header",
    "dead_letters",
    "redeliveries",
    "failures",
    "matching",
    "broker",
)


class By(StrEnum):
    """How long the stretches of time are that are shown."""

    DAY = "day"
    HOUR = "hour"
    MINUTE = "minute"


_STEPS: Final = {By.DAY: timedelta(days=1), By.HOUR: timedelta(hours=1), By.MINUTE: timedelta(minutes=1)}


def command(
    group: OfGroup = None,
    topic: OfTopic = None,
    namespace: OfNamespace = None,
    by_queue: Annotated[bool, typer.Option("--by-queue", help="Each queue by itself, with its broker.")] = False,
    history: Annotated[bool, typer.Option("--history", help="How far it was behind, minute by minute.")] = False,
    since: Since = None,
    until: Until = None,
    by: Annotated[By, typer.Option("--by", help="Of the history, each minute, hour or day (in UTC).")] = By.MINUTE,
    as_json: AsJson = False,
) -> None:
    """Show how far each group is behind, the worst first, as of its last checkpoint.

    `behind` counts messages of the topic that are not settled. Those that no subscription of the group selects count as
    well, until a broker has read past them; a group without an instance reads nothing. So does what was just redriven
    or replayed to another group, in `matching` as well. `matching`: how many of them the group will get, about, by the
    share that matched of what was read lately. It is not known before a broker has read 50 messages of a queue, nor
    after the subscriptions changed until it has again; with `+ ?` it is not known on some queues (--by-queue).
    `redeliveries` counts those that wait for another attempt; they are not in `behind`.
    `since` (UTC): when the message was stored with which it began to be more than a minute late; where it is not, the
    oldest that is not settled. `drains in`: when nothing is behind any more, at the pace of the last ten minutes; or
    `no instance` where none of the group is connected, and `paused` where it, or all that it subscribes to there, is.
    `alarms`: what is wrong, e.g. REDELIVERIES_FULL: so many of them wait on one queue (10,000) that no more is read
    from it until some are settled. `msgcenter alarm list` says more.
    `failures`, shown where there are any: how often the group's expressions failed on messages of the topic, which is
    no match; with the header that was missing the last time. `msgcenter subscription show` says more.
    `--history` shows the last hour, or other times with --since and --until, up to 30 days back.
    Where the archive is required, the oldest day that is not archived yet is told on standard error.

    Example: msgcenter lag --group SG_POINTS --by-queue
    """
    wanted = WantedFigures(namespace, group, topic)
    if history:
        _show_history(wanted, since, until, by, as_json=as_json)
        return
    if since is not None or until is not None:
        message = "is of the history: --history shows it"
        raise typer.BadParameter(message, param_hint="--since" if since is not None else "--until")
    report = act(lambda stores: read_lag(stores, wanted))
    _show_now(report, wanted, by_queue=by_queue, as_json=as_json)
    if report.waiting is not None:
        typer.echo(_not_archived(report.waiting), err=True)


def _show_now(report: LagReport, wanted: WantedFigures, *, by_queue: bool, as_json: bool) -> None:
    rows: Sequence[QueueLag | TopicLag] = report.queues if by_queue else sum_by_topic(report.queues)
    if as_json:
        print_json(rows)
        return
    columns = ["namespace"] if len({row.namespace for row in rows}) > 1 else []
    columns += ["group", "topic"]
    if by_queue:
        columns += ["queue_id"]
    columns += ["behind", "matching", "since", *(["broker"] if by_queue else ["drains_in"]), "redeliveries", "alarms"]
    if not by_queue:
        columns += ["dead_letters"]
    if any(row.failures for row in rows):
        columns += ["failures", "last_failed_header", "last_failed_at"]
    shown = [_shown(row) for row in rows]
    print_rows(shown, columns, as_json=False, empty=_nothing(wanted), long=["last_failed_header"], least=_LEAST)
    if wanted.group is not None and any(row.behind or row.redeliveries for row in rows):
        of_namespace = "" if rows[0].namespace == DEFAULT_NAMESPACE else f" -n {rows[0].namespace}"
        print_line(f"What it has not settled, and who has it: msgcenter group unsettled {wanted.group}{of_namespace}")


def _shown(row: QueueLag | TopicLag) -> Mapping[str, Any]:
    """Return a row as people read it."""
    record: dict[str, Any] = plain(row)
    record["since"] = clock_time(row.since, datetime.now(UTC))
    unknown = row.matching_unknown if isinstance(row, TopicLag) else 0
    record["matching"] = _estimate(row.behind, row.matching, unknown)
    if isinstance(row, TopicLag):
        record["drains_in"] = _drains_in(row)
    return record


def _drains_in(row: TopicLag) -> str | None:
    """Return when nothing is behind any more, or what keeps it."""
    if row.paused:
        return "paused"
    if not row.behind:
        return None
    if not row.instances:
        return "no instance"
    grows = row.drain_seconds is None and max(row.per_minute or 0.0, row.matching_per_minute or 0.0) > 0
    return "it grows" if grows else length(row.drain_seconds)


def _estimate(behind: int, matching: int | None, unknown: int) -> str:
    """Return an estimate as people read it: a question mark is what is not known on some queues."""
    if not behind:
        return "0"
    return "not known" if matching is None else f"about {matching} + ?" if unknown else f"about {matching}"


def clock_time(at: datetime | None, now: datetime) -> str | None:
    """Return a time (UTC) as short as it can be said: of today the clock, else with the day."""
    if at is None:
        return None
    return f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%m-%d %H:%M}"


def _show_history(
    wanted: WantedFigures, since: datetime | None, until: datetime | None, by: By, *, as_json: bool
) -> None:
    end = until or datetime.now(UTC)
    begin = since or hour_before(end)
    report = act(lambda stores: read_backlog(stores, wanted, begin, end, _STEPS[by]))
    if as_json:
        print_json(report)
        return
    columns = ["begins_at"]
    if len({row.namespace for row in report.rows}) > 1:
        columns += ["namespace"]
    columns += ["group", "topic", "behind", "matching", "behind_max", "redeliveries", "late_since"]
    now = datetime.now(UTC)
    rows = [
        {
            **plain(row),
            "late_since": clock_time(row.late_since, now),
            "matching": _estimate(row.behind, row.matching, row.matching_unknown),
        }
        for row in report.rows
    ]
    least = ("redeliveries", "behind_max", "late_since")
    print_rows(rows, columns, as_json=False, empty="Nobody was behind in that time.", least=least)
    _tell_what_lacks(report)


def _tell_what_lacks(report: BacklogReport) -> None:
    for begin, end in report.not_looked_at:
        typer.echo(f"Nobody looked from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} (UTC).", err=True)
    if report.is_cut:
        typer.echo("There is more, of earlier times.", err=True)
    if not report.knows_all_deleted:
        tell_not_all_deleted()


def _not_archived(waiting: WaitingDay) -> str:
    since = f"{waiting.waits_seconds / _DAY_SECONDS:.1f} days"
    return f"Not archived yet: {waiting.day} of {waiting.table}, which was over {since} ago: {visible(waiting.reason)}."


def _nothing(wanted: WantedFigures) -> str:
    who = "No group subscribes" if wanted.group is None else f"Group {wanted.group} does not subscribe"
    return f"{who} to {wanted.topic or 'anything'}."
