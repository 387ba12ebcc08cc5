"""`msgcenter message try`: what one instance of a group makes of messages of the log."""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

import typer

from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.carrying_out.service import actor
from msgconsole.cli.printing.incomplete import tell_incomplete, tell_unanswered
from msgconsole.cli.printing.output import plain, print_json, print_line, print_rows, visible
from msgconsole.cli.typed.options import DEFAULT_NAMESPACE, AsJson, DryRun, Namespace, Reason, require_reason
from msgconsole.operations.replays.trial import TriedMessage, TryDone, TryPlan, WantedTry, plan_try, try_messages
from msgconsole.operations.stores import Stores
from msgdb.jobs.trials import TrialOutcome, TrialState

_COLUMNS: Final = ("message_id", "outcome", "seconds", "error")


def try_(
    message_ids: Annotated[list[UUID], typer.Argument(metavar="MESSAGE_ID", help="The messages, in this order.")],
    group: Annotated[str, typer.Option("--group", help="The subscriber group that the instance is of.")],
    instance_id: Annotated[str, typer.Option("--instance", help="The instance's id: no other instance notices.")],
    reason: Reason = None,
    dry_run: DryRun = False,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Hand messages of the log to one connected instance, and tell what it made of each: to try a fix.

    Its handler runs, with all that it does, and sees that it is a replay (`message.replayed`). What it says is told
    here, and nowhere else: nothing is stored, no attempt is counted, the group's place stays where it is. The group may
    be paused. One message after the other is tried; ending the command ends the trial. The status is 0 where all were
    acknowledged. It is refused where all brokers answer and none has the instance; --dry-run asks them, too.

    Example: msgcenter message try 019a9f6c-7d2a-7c31-b2a4-5d1f0e3c9a10 --group SG_POINTS --instance points-0 --dry-run
    """
    who = require_reason(reason, dry_run=dry_run)
    wanted = WantedTry(namespace=namespace, group=group, instance_id=instance_id, message_ids=tuple(message_ids))
    if dry_run:
        _tell_plan(act(lambda stores: plan_try(stores, wanted)), instance_id, as_json=as_json)
        return

    def tell(tried: TriedMessage) -> None:
        if not as_json:
            typer.echo(f"{tried.message_id}: {tried.outcome} after {tried.seconds:g} s", err=True)

    async def carry_out(stores: Stores) -> TryDone:
        return await try_messages(stores, wanted, actor=actor(), reason=who, on_tried=tell)

    done = act(carry_out)
    if as_json:
        print_json(done)
    else:
        print_rows(done.messages, _COLUMNS, as_json=False, empty="No message was tried.", long=["error"])
        if done.error is not None:
            typer.echo(f"{done.untried:,} messages were not tried: {visible(done.error)}.", err=True)
    is_well = all(each.outcome == TrialOutcome.ACKNOWLEDGED for each in done.messages)
    if done.state is not TrialState.DONE or not is_well:
        raise typer.Exit(1)


def _tell_plan(plan: TryPlan, instance_id: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"instance_id": instance_id, **plain(plan)})
    else:
        messages = f"{plan.messages:,} message{'s' if plan.messages != 1 else ''}"
        print_line(f"{messages} would be tried by {instance_id}. Nothing was changed.")
    tell_unanswered(plan.unanswered)
    if not plan.is_connected:
        tell_incomplete(f"no broker that has answered has {instance_id}")
