"""`msgcenter group reset`: put a group somewhere else on its topics."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final

import typer

from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.carrying_out.service import actor
from msgconsole.cli.printing.output import print_json, print_line, print_rows
from msgconsole.cli.printing.waiting import WAIT_SECONDS, tell_still_waiting, tell_waiting
from msgconsole.cli.typed.options import (
    DEFAULT_NAMESPACE,
    AsJson,
    DryRun,
    Namespace,
    OfTopic,
    Reason,
    SubscriberGroup,
    require_reason,
)
from msgconsole.cli.typed.times import FORMS, parse_time
from msgconsole.operations.lanes.resetting import QueueReset, ResetDone, WantedReset, plan_reset, reset_group
from msgconsole.operations.stores import Stores

_COLUMNS: Final = ("topic", "queue_id", "from_offset", "to_offset", "skipped", "again", "matching", "waiting_anew")


def reset(
    group: SubscriberGroup,
    to_time: Annotated[
        datetime | None,
        typer.Option("--to-time", parser=parse_time, metavar="TIME", help=f"Where it was then, in UTC: {FORMS}."),
    ] = None,
    to_beginning: Annotated[bool, typer.Option("--to-beginning", help="To the first message that there is.")] = False,
    to_end: Annotated[bool, typer.Option("--to-end", help="Behind the last message: all of it is skipped.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", help="To that offset of a queue (--queue).")] = None,
    queue_id: Annotated[int | None, typer.Option("--queue", help="Of this queue alone, with --to-offset.")] = None,
    topic: OfTopic = None,
    reason: Reason = None,
    dry_run: DryRun = False,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Put a group somewhere else on its topics, while its instances are connected or not.

    Forward, what lies between is skipped, and what waits there for another attempt. Back, all from there on comes
    again, also from before its subscriptions began. It returns once nothing is handed out any more by where the group
    was; what its instances are at by then they finish, and what they say of it counts no more.
    `matching`: how many of the skipped ones, or of those that come again, it subscribes to (with ~ where there are so
    many that only some were looked at).

    Example: msgcenter group reset SG_POINTS --topic TP_TRADE --to-time 10:00 --dry-run
    """
    if [to_time is not None, to_beginning, to_end, to_offset is not None].count(True) != 1:
        message = "say where to, by one of --to-time, --to-beginning, --to-end and --to-offset (with --queue)"
        raise typer.BadParameter(message)
    if (to_offset is None) is not (queue_id is None):
        message = "goes with an offset of that queue, and the other way round: --queue 6 --to-offset 1000"
        raise typer.BadParameter(message, param_hint="--queue")
    who = require_reason(reason, dry_run=dry_run)
    wanted = WantedReset(
        namespace=namespace,
        group=group,
        topic=topic,
        to_time=to_time,
        to_beginning=to_beginning,
        to_end=to_end,
        to_offset=to_offset,
        queue_id=queue_id,
    )
    if dry_run:
        _tell(act(lambda stores: plan_reset(stores, wanted)), "Nothing was changed.", as_json=as_json)
        return

    async def carry_out(stores: Stores) -> ResetDone:
        return await reset_group(
            stores, wanted, actor=actor(), reason=who, wait_seconds=WAIT_SECONDS, on_waiting=tell_waiting(is_done=True)
        )

    done = act(carry_out)
    tell_still_waiting(done.waiting_for)
    _tell(done.queues, f"Group {group} is there.", as_json=as_json)


def _tell(queues: Sequence[QueueReset], said: str, *, as_json: bool) -> None:
    if as_json:
        print_json(queues)
        return
    records = [
        {
            **{name: getattr(each, name) for name in _COLUMNS},
            "matching": f"{'' if each.is_exact else '~'}{each.matching}",
        }
        for each in queues
    ]
    print_rows(records, _COLUMNS, as_json=False, empty="It subscribes to nothing that has a queue.")
    skipped, again = sum(each.skipped for each in queues), sum(each.again for each in queues)
    print_line(f"{skipped:,} skipped, {again:,} come again. {said}")
    copies = sum(each.copies for each in queues)
    if copies:
        about = "" if all(each.is_exact for each in queues) else "About "
        print_line(f"{about}{copies:,} of what matches were stored once more for the group, redriven or replayed.")
