"""`msgcenter usage`: how many messages were published and delivered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Final

import typer

from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.printing.incomplete import tell_incomplete, tell_not_all_deleted
from msgconsole.cli.printing.output import plain, print_json, print_line, print_rows
from msgconsole.cli.typed.options import AsJson, OfGroup, OfNamespace, OfTopic
from msgconsole.cli.typed.times import Since, Until, hour_before
from msgconsole.operations.figures.usage import UsageOfTopic, UsageOfType, UsageReport, read_usage, sum_by_topic
from msgconsole.operations.figures.wanted import WantedFigures


class By(StrEnum):
    """How long the stretches of time are that are shown."""

    TOTAL = "total"
    DAY = "day"
    HOUR = "hour"
    MINUTE = "minute"


STEPS: Final = {
    By.TOTAL: None,
    By.DAY: timedelta(days=1),
    By.HOUR: timedelta(hours=1),
    By.MINUTE: timedelta(minutes=1),
}


def command(
    topic: OfTopic = None,
    group: OfGroup = None,
    namespace: OfNamespace = None,
    since: Since = None,
    until: Until = None,
    by: Annotated[By, typer.Option("--by", help="Each day (in UTC), hour or minute by itself.")] = By.TOTAL,
    by_topic: Annotated[
        bool, typer.Option("--by-topic", help="Added up by topic: all event codes, and all groups together.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show how many messages were published and delivered, in the last hour unless you say otherwise.

    A row without a group is of publishing: `published`, and the bytes stored. The others are of a group: `delivered` is
    what it acknowledged, `retried` attempts that failed, `dead lettered` what was given up on, and `redriven` and
    `replayed` what was stored again for it, which is not published once more. `p99 seconds`: within so many seconds of
    being stored nearly all of it was acknowledged. Stress traffic is counted apart. After a reset or
    a replay these seconds are long: they count from when the message was stored.
    Brokers write every ten seconds. A minute that lacks something, because a broker was killed, is told on standard
    error.

    Example: msgcenter usage --topic TP_TRADE --since 2h --by hour
    """
    now = datetime.now(UTC)
    end = until or now
    begin = since or hour_before(end)
    report = act(lambda stores: read_usage(stores, WantedFigures(namespace, group, topic), begin, end, STEPS[by]))
    rows: Sequence[UsageOfType | UsageOfTopic] = sum_by_topic(report.rows) if by_topic else report.rows
    if as_json:
        print_json(plain(report) | {"rows": plain(rows)})
        return
    columns = _columns(rows, by)
    nothing = "Nothing was counted in that time."
    print_rows(rows, columns, as_json=False, empty=nothing, least=["bytes", "p99_seconds"])
    if rows:
        print_line(f"From {report.since:%Y-%m-%d %H:%M} to {report.until:%Y-%m-%d %H:%M} (UTC).")
    _tell_what_lacks(report)


def _columns(rows: Sequence[UsageOfType | UsageOfTopic], by: By) -> list[str]:
    """Return the columns that are worth their room."""
    columns = [] if by is By.TOTAL else ["begins_at"]
    if len({row.namespace for row in rows}) > 1:
        columns.append("namespace")
    columns += ["topic"]
    if any(isinstance(row, UsageOfType) for row in rows):
        columns += ["event_code", "group"]
    if any(row.stress for row in rows):
        columns.append("stress")
    columns += ["published"]
    columns += [name for name in ("redriven", "replayed") if any(getattr(row, name) for row in rows)]
    columns += ["delivered"]
    columns += [name for name in ("retried", "dead_lettered") if any(getattr(row, name) for row in rows)]
    return [*columns, "bytes", "p99_seconds"]


def _tell_what_lacks(report: UsageReport) -> None:
    """Say on standard error what the figures lack, if anything."""
    if report.incomplete:
        first, last = report.incomplete[0], report.incomplete[-1]
        which = f"{first:%Y-%m-%d %H:%M}" + (f" to {last:%Y-%m-%d %H:%M}" if last > first else "")
        tell_incomplete(f"{len(report.incomplete)} minute(s) may lack what a broker counted ({which}, UTC)")
    if report.is_cut:
        # Also where they are added up: then the sums lack what comes behind these.
        typer.echo(
            f"There is more: these are the first {len(report.rows)} rows of topic, event code and group.", err=True
        )
    if not report.knows_all_deleted:
        tell_not_all_deleted()
