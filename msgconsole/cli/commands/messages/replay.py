"""`msgcenter message replay`: deliver what is stored again, to one group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import typer

from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.carrying_out.following import follow_begun
from msgconsole.cli.carrying_out.service import actor
from msgconsole.cli.printing.output import plain, print_json, print_line
from msgconsole.cli.typed.options import (
    DEFAULT_NAMESPACE,
    AsJson,
    DoNotFollow,
    DryRun,
    Headers,
    Namespace,
    OfEventCode,
    OfKey,
    OfTopic,
    Rate,
    Reason,
    read_headers,
    require_reason,
)
from msgconsole.cli.typed.times import Since, Until
from msgconsole.operations.replays import replay as replaying
from msgconsole.operations.replays.replay import ReplayPlan, WantedReplay
from msgdb.jobs.records import RATE_DEFAULT


def replay(
    group: Annotated[str, typer.Option("--group", help="The subscriber group that gets them; no other does.")],
    message_ids: Annotated[
        list[UUID] | None, typer.Argument(metavar="MESSAGE_ID", help="These messages, whatever they are.")
    ] = None,
    topic: OfTopic = None,
    event_code: OfEventCode = None,
    key: OfKey = None,
    header: Headers = None,
    since: Since = None,
    until: Until = None,
    whatever: Annotated[
        bool, typer.Option("--whatever-it-asks-for", help="Not only what the group's subscriptions ask for.")
    ] = False,
    reason: Reason = None,
    rate: Rate = RATE_DEFAULT,
    dry_run: DryRun = False,
    no_wait: DoNotFollow = False,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Deliver messages of the log again, to one group: those of a time, or those that are named.

    The group's place on the topic stays where it is, and other groups see nothing of it. A message keeps its id;
    handlers see that it is a replay (`message.replayed`). What the group has not been given yet comes twice then.
    A job does it: it goes on when this command is ended, and when a broker dies.

    Example: msgcenter message replay --group SG_POINTS --topic TP_TRADE --since 10:00 --until 11:00 --dry-run
    """
    who = require_reason(reason, dry_run=dry_run)
    _check_said_once(message_ids, (topic, since), (event_code, key, header or None, until))
    wanted = WantedReplay(
        namespace=namespace,
        group=group,
        topic=topic,
        event_code=event_code,
        key=key,
        headers=read_headers(header),
        stored_from=since,
        stored_before=until,
        message_ids=tuple(message_ids or ()),
        whatever_it_asks_for=whatever,
    )
    if dry_run:
        _tell_plan(act(lambda stores: replaying.plan_replay(stores, wanted)), as_json=as_json)
        return
    begun = act(lambda stores: replaying.replay(stores, wanted, actor=actor(), reason=who, rate=rate))
    follow_begun(begun.job_id, namespace, no_wait=no_wait, as_json=as_json)


def _check_said_once(message_ids: Sequence[UUID] | None, needed: Sequence[object], more: Sequence[object]) -> None:
    if message_ids and any(each is not None for each in (*needed, *more)):
        raise typer.BadParameter("give the ids of messages, or conditions, and not both")
    if not message_ids and any(each is None for each in needed):
        raise typer.BadParameter("give the ids of messages, or --topic and --since (and what else you know)")


def _tell_plan(plan: ReplayPlan, *, as_json: bool) -> None:
    if as_json:
        record = plain(plan)
        print_json({name: record[name] for name in ("thing", "looked_at", "replayed", "denied", "is_exact")})
        return
    about = "" if plan.is_exact else "about "
    print_line(
        f"{plan.thing}: {about}{plan.replayed:,} of {plan.looked_at:,} messages would be delivered again."
        " Nothing was changed."
    )
    if plan.denied:
        print_line(
            f"Of these, {about}{plan.denied:,} are stress messages, and the group is not on the whitelist: they would"
            " be settled without being delivered."
        )
