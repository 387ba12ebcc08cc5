"""`msgcenter topic update`: change a topic, or see what that would mean for what is published to it."""

from __future__ import annotations

from typing import Annotated

import typer

from confdb.services.views import TopicView
from msgbroker.contract import limits
from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.carrying_out.service import change
from msgconsole.cli.commands.topics.options import TraceRate
from msgconsole.cli.printing.foretold import NO_CHANGE, NOTHING_DONE, span_said, tell_changes
from msgconsole.cli.printing.incomplete import tell_incomplete, tell_unanswered
from msgconsole.cli.printing.output import print_json, print_line
from msgconsole.cli.typed.given import require_a_change
from msgconsole.cli.typed.options import (
    DEFAULT_NAMESPACE,
    AsJson,
    Description,
    DryRun,
    Namespace,
    NoWait,
    ReasonOfChange,
    Topic,
)
from msgconsole.operations.configuration.topic_preview import (
    Publishing,
    TopicPreview,
    TopicSettings,
    preview_topic_update,
)


def update(
    context: typer.Context,
    name: Topic,
    queues: Annotated[
        int | None, typer.Option("--queues", min=1, max=limits.QUEUES_MAX, help="More queues; never fewer.")
    ] = None,
    body_bytes_max: Annotated[
        int | None,
        typer.Option("--body-bytes-max", min=1, max=limits.BODY_BYTES_CEILING, help="The largest body it takes."),
    ] = None,
    is_open: Annotated[
        bool | None, typer.Option("--open/--not-open", help="Unknown event codes register themselves.")
    ] = None,
    is_closed: Annotated[bool | None, typer.Option("--closed/--not-closed", help="Take no new messages.")] = None,
    stress_refused: Annotated[
        bool | None, typer.Option("--refuse-stress/--take-stress", help="The kill switch for stress traffic.")
    ] = None,
    trace_rate: TraceRate = None,
    description: Description = None,
    dry_run: DryRun = False,
    reason: ReasonOfChange = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Change what is given of a topic.

    A dry run tells what of the newest messages would be refused, and who publishes how much to a topic that is closed.

    Example: msgcenter topic update TP_TRADE --queues 16 --refuse-stress --dry-run
    """
    require_a_change(context)
    settings = TopicSettings(
        queue_count=queues,
        body_bytes_max=body_bytes_max,
        is_open=is_open,
        is_closed=is_closed,
        stress_refused=stress_refused,
        trace_rate=trace_rate,
        description=description,
    )
    if dry_run:
        preview = act(lambda stores: preview_topic_update(stores, namespace, name, reason=reason or "", **settings))
        _tell(preview, name, as_json=as_json)
        return
    change(
        lambda service: service.topics.update(namespace, name, **settings),
        lambda changed: _said(changed, is_opened=is_open),
        as_json=as_json,
        wait=not no_wait,
        reason=reason,
    )


def _said(changed: TopicView, *, is_opened: bool | None) -> str:
    """Return that it is changed; open and closed are not each other's contrary."""
    still = " It is closed all the same: --not-closed lets it take messages." if is_opened and changed.is_closed else ""
    return f"Topic {changed.name} is changed.{still}"


def _tell(preview: TopicPreview, name: str, *, as_json: bool) -> None:
    if as_json:
        print_json(preview)
        return
    if not preview.changes:
        print_line(NO_CHANGE)
        return
    tell_changes(preview.changes)
    if preview.stays_closed:
        print_line("It stays closed all the same: --not-closed lets it take messages.")
    if preview.refused is not None:
        refused = preview.refused
        looked_at = span_said(refused.looked_at, refused.oldest_at, refused.newest_at, is_all=refused.is_all)
        print_line(f"Of {looked_at} {refused.messages:,} would be refused, were they published then.")
        if refused.examples:
            print_line(f"For example: {' '.join(map(str, refused.examples))}")
    if preview.stress_groups is not None:
        groups = ", ".join(preview.stress_groups) or "none"
        print_line(f"Groups that are given stress messages of it now: {groups}. What waits for them is settled, too.")
    if preview.publishing is not None:
        _tell_publishing(preview.publishing, name)
    if preview.queues_sealed is not None:
        print_line(
            f"{preview.queues_sealed} queues would be sealed and read to their end; all that comes goes to new ones. "
            "Nothing is lost; while a group is behind on a sealed queue, a later message of a key may come before an "
            "earlier one."
        )
    print_line(NOTHING_DONE)


def _tell_publishing(publishing: Publishing, name: str) -> None:
    each = publishing.published / publishing.minutes
    print_line(
        f"{name} would take no message: {publishing.published:,} came in the last {publishing.minutes} minutes "
        f"({each:,.1f} a minute). Publishers that have a stream in the namespace, to whatever topics: "
        f"{publishing.publishers:,}."
    )
    if publishing.has_more_publishers:
        tell_incomplete(f"more than {publishing.publishers:,} publishers have a stream, and the others are not counted")
    if not publishing.is_complete:
        tell_incomplete("the figures of these minutes lack something")
    tell_unanswered(publishing.unanswered)
