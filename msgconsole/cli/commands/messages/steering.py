"""`msgcenter message skip` and `retry-now`: the one message that blocks a group."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.carrying_out.service import actor
from msgconsole.cli.printing.output import print_json, print_line
from msgconsole.cli.printing.waiting import WAIT_SECONDS, tell_still_waiting, tell_waiting
from msgconsole.cli.typed.one_message import AtOffset, InQueue, MessageId, check_named_once
from msgconsole.cli.typed.options import DEFAULT_NAMESPACE, AsJson, DryRun, Namespace, Reason, require_reason
from msgconsole.operations.lanes.meant import WantedMessage
from msgconsole.operations.lanes.steering import (
    Steer,
    SteerDone,
    SteerPlan,
    plan_steer,
    steer_message,
)
from msgconsole.operations.stores import Stores
from msgdb.lanes.steering import Standing

_Group = Annotated[str, typer.Option("--group", help="The subscriber group; no other notices.")]

_STANDS: Final = {
    Standing.UNSETTLED: "is not settled: not read yet, or with an instance",
    Standing.WAITING: "waits for attempt {attempt}, or is with an instance for it",
    Standing.SHELVED: "waits for paused subscriptions",
    Standing.SETTLED: "is settled",
}


def skip(
    group: _Group,
    message_id: MessageId = None,
    queue_id: InQueue = None,
    queue_offset: AtOffset = None,
    whatever: Annotated[
        bool, typer.Option("--whatever-it-asks-for", help="Also one that the group's subscriptions do not ask for now.")
    ] = False,
    reason: Reason = None,
    dry_run: DryRun = False,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Have a group done with one message: it becomes a dead letter, SKIPPED, for this group alone.

    It may wait for another attempt, be with an instance, or not be read yet. An instance that has it finishes, and what
    it says of it counts no more. What else of that queue is with instances of the group comes again (a dry run says how
    many at most): where that must not be, pause the group first, and let it finish. `dead-letters redrive` delivers
    the message again.

    Example: msgcenter message skip --group SG_POINTS --queue 1 --offset 0 --dry-run
    """
    wanted = WantedMessage(
        namespace=namespace,
        group=group,
        message_id=message_id,
        queue_id=queue_id,
        queue_offset=queue_offset,
        whatever_it_asks_for=whatever,
    )
    _steer(wanted, Steer.SKIP, reason, dry_run=dry_run, as_json=as_json)


def retry_now(
    group: _Group,
    message_id: MessageId = None,
    queue_id: InQueue = None,
    queue_offset: AtOffset = None,
    reason: Reason = None,
    dry_run: DryRun = False,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Let the next attempt of one message be due at once, whatever its group's retry schedule says.

    Its attempts count on. One that is with an instance comes again, perhaps to another one; one that was not read yet
    overtakes what is before it. What else of that queue is with instances of the group comes again as well (a dry run
    says how many at most).

    Example: msgcenter message retry-now --group SG_POINTS --queue 1 --offset 0 --dry-run
    """
    wanted = WantedMessage(
        namespace=namespace, group=group, message_id=message_id, queue_id=queue_id, queue_offset=queue_offset
    )
    _steer(wanted, Steer.RETRY_NOW, reason, dry_run=dry_run, as_json=as_json)


def _steer(wanted: WantedMessage, steer: Steer, reason: str | None, *, dry_run: bool, as_json: bool) -> None:
    check_named_once(wanted.message_id, wanted.queue_id, wanted.queue_offset)
    who = require_reason(reason, dry_run=dry_run)
    if dry_run:
        _tell_plan(act(lambda stores: plan_steer(stores, wanted, steer)), steer, as_json=as_json)
        return

    async def carry_out(stores: Stores) -> SteerDone:
        return await steer_message(
            stores,
            wanted,
            steer,
            actor=actor(),
            reason=who,
            wait_seconds=WAIT_SECONDS,
            on_waiting=tell_waiting(is_done=True),
        )

    done = act(carry_out)
    tell_still_waiting(done.waiting_for)
    if as_json:
        print_json(done)
        return
    kept = "" if done.dead_letter_id is None else f": it is dead letter {done.dead_letter_id}"
    kept += ", as it was before the group was reset" if done.is_earlier_letter else ""
    said = f"is skipped{kept}" if steer is Steer.SKIP else "is due now"
    print_line(f"Message {done.plan.message_id} {said}.")


def _tell_plan(plan: SteerPlan, steer: Steer, *, as_json: bool) -> None:
    if as_json:
        print_json(plan)
        return
    stands = _STANDS[plan.standing].format(attempt=plan.attempt)
    place = f"{plan.topic}/{plan.event_code}, queue {plan.queue_id}, offset {plan.queue_offset}"
    print_line(f"Message {plan.message_id} ({place}) {stands}.")
    would = "be a dead letter" if steer is Steer.SKIP else "be due now"
    print_line(f"It would {would}; {plan.others:,} others of the queue at most would come again. Nothing was changed.")
