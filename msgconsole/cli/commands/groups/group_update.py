"""`msgcenter group update`: change a group, or see what that would mean for what it is at."""

from __future__ import annotations

from typing import Annotated

import typer

from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.carrying_out.service import change
from msgconsole.cli.commands.groups.options import (
    AckTimeout,
    AttemptsMax,
    HandleMax,
    RetrySchedule,
    UnsettledMax,
    read_schedule,
)
from msgconsole.cli.commands.groups.pausing import told_change
from msgconsole.cli.printing.foretold import NO_CHANGE, NOTHING_DONE, tell_activity, tell_changes
from msgconsole.cli.printing.output import print_json, print_line
from msgconsole.cli.typed.given import require_a_change
from msgconsole.cli.typed.options import (
    DEFAULT_NAMESPACE,
    AsJson,
    Description,
    DryRun,
    GroupName,
    Namespace,
    NoWait,
    ReasonOfChange,
)
from msgconsole.operations.configuration.group_preview import (
    GroupPreview,
    GroupSettings,
    WaitingAttempts,
    preview_group_update,
)

_SHOWN_MAX = 5


def update(
    context: typer.Context,
    name: GroupName,
    ack_timeout_seconds: AckTimeout = None,
    handle_seconds_max: HandleMax = None,
    retry_schedule: RetrySchedule = None,
    attempts_max: AttemptsMax = None,
    unsettled_max: UnsettledMax = None,
    paused: Annotated[bool | None, typer.Option("--pause/--resume", help="Hand out nothing, or again.")] = None,
    description: Description = None,
    dry_run: DryRun = False,
    reason: ReasonOfChange = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Change what is given of a subscriber group.

    A dry run tells what is in flight and behind, which instances hold more than they could be given, and how many
    messages that wait for another attempt would become dead letters if that fails.

    Example: msgcenter group update SG_POINTS --pause --dry-run
    """
    require_a_change(context)
    settings = GroupSettings(
        ack_timeout_seconds=ack_timeout_seconds,
        handle_seconds_max=handle_seconds_max,
        retry_schedule_seconds=read_schedule(retry_schedule),
        attempts_max=attempts_max,
        unsettled_max=unsettled_max,
        paused=paused,
        description=description,
    )
    if dry_run:
        preview = act(lambda stores: preview_group_update(stores, namespace, name, reason=reason or "", **settings))
        _tell(preview, as_json=as_json)
        return
    change(
        lambda service: service.subscriber_groups.update(namespace, name, **settings),
        lambda changed: told_change(f"Group {changed.name}", context, paused=paused),
        as_json=as_json,
        wait=not no_wait,
        reason=reason,
    )


def _tell(preview: GroupPreview, *, as_json: bool) -> None:
    if as_json:
        print_json(preview)
        return
    if not preview.changes:
        print_line(NO_CHANGE)
        return
    tell_changes(preview.changes)
    if preview.activity is not None:
        tell_activity(preview.activity)
    fields = {change.field for change in preview.changes}
    if fields & {"ack_timeout_seconds", "handle_seconds_max"}:
        print_line("What is in flight keeps its time; what is handed out from then on has the other.")
    if preview.holding_more is not None:
        named = ", ".join(f"{each.instance_id} {each.unsettled:,}" for each in preview.holding_more[:_SHOWN_MAX])
        more = ", ..." if preview.holding_more[_SHOWN_MAX:] else ""
        who = f": {named}{more}; they get nothing until they hold less" if named else ""
        print_line(f"Instances that hold more than that: {len(preview.holding_more):,}{who}.")
    if preview.attempts is not None:
        _tell_attempts(preview.attempts)
    print_line(NOTHING_DONE)


def _tell_attempts(attempts: WaitingAttempts) -> None:
    print_line(
        f"Messages that wait for another attempt: {attempts.waiting:,}. Should it fail, {attempts.last_after:,} of "
        f"them would be dead letters; as it is, {attempts.last_before:,} ({attempts.newly_last:,} newly, "
        f"{attempts.no_longer_last:,} no longer)."
    )
