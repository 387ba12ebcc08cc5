"""`msgcenter subscription update`: change a subscription in place, or see what its group would get by that."""

from __future__ import annotations

from typing import Annotated, TypedDict

import typer

from confdb.expressions.compiled import warnings_about
from confdb.routes import SubscriptionMode
from confdb.services import Changed, SubscriptionView
from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.carrying_out.service import actor
from msgconsole.cli.commands.groups.options import Expression
from msgconsole.cli.commands.groups.pausing import told_change
from msgconsole.cli.commands.groups.previewing import tell_subscription, tell_warnings
from msgconsole.cli.printing.output import plain, print_json, print_line, print_rows
from msgconsole.cli.printing.waiting import stands_though_ended
from msgconsole.cli.typed.given import require_a_change
from msgconsole.cli.typed.options import (
    DEFAULT_NAMESPACE,
    AsJson,
    DryRun,
    EventCodeOrAll,
    Namespace,
    ReasonOfChange,
    SubscriberGroup,
    Topic,
)
from msgconsole.operations.configuration.newest import NamedType
from msgconsole.operations.configuration.subscribing import Held, update_subscription
from msgconsole.operations.configuration.subscription_preview import preview_subscription_update
from msgconsole.operations.stores import Stores


class _Wanted(TypedDict):
    """What is to be changed; what is None stays."""

    mode: SubscriptionMode | None
    expression: str | None
    paused: bool | None


def update(
    context: typer.Context,
    group: SubscriberGroup,
    topic: Topic,
    event_code: EventCodeOrAll = "*",
    expression: Expression = None,
    direct: Annotated[
        bool, typer.Option("--direct", help="Every message of the type: no expression any more.")
    ] = False,
    paused: Annotated[
        bool | None, typer.Option("--pause/--resume", help="Let what only this subscription wants wait, or come.")
    ] = None,
    dry_run: DryRun = False,
    reason: ReasonOfChange = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Change a subscription in place: the group keeps its place on the topic.

    It is told from which offset of each queue on another expression holds for certain; what lies before, and was not
    read yet, may be selected by either. What a paused subscription wants, and no other of its group, waits in order,
    up to 10,000 messages a queue: then the group's lane there waits as well. Nothing is lost, for as long as messages
    are kept. A dry run tries it on the newest messages of the type, as brokers would.

    Example: msgcenter subscription update SG_POINTS TP_TRADE EC_PAID --expression 'headers.region == "hz"' --dry-run
    """
    require_a_change(context)
    mode = SubscriptionMode.DIRECT if direct else None
    asked = NamedType(namespace, group, topic, event_code)
    wanted = _Wanted(mode=mode, expression=expression, paused=paused)
    if dry_run:
        preview = act(lambda stores: preview_subscription_update(stores, asked, reason=reason or "", **wanted))
        tell_subscription(preview, f"{topic}/{event_code}", as_json=as_json)
        return
    changed, held = act(lambda stores: _carry_out(stores, asked, wanted, reason=reason or ""))
    warnings = () if expression is None else warnings_about(expression)
    if as_json:
        print_json(plain(changed.thing) | {"config_version": changed.version, "holds_from": held, "warnings": warnings})
        return
    print_line(told_change(f"The subscription of {group} to {topic}/{event_code}", context, paused=paused))
    if expression is not None or direct:
        print_line("For certain it holds from these offsets on:")
        print_rows(held, ("queue_id", "from_offset"), as_json=False, empty="The topic has no queue yet.")
    tell_warnings(warnings)


async def _carry_out(
    stores: Stores, asked: NamedType, wanted: _Wanted, *, reason: str
) -> tuple[Changed[SubscriptionView], list[Held]]:
    with stands_though_ended(f"The subscription of {asked.group} to {asked.topic}/{asked.event_code}") as stands:
        return await update_subscription(
            stores,
            asked.namespace,
            asked.group,
            asked.topic,
            asked.event_code,
            actor=actor(),
            reason=reason,
            on_registered=stands,
            **wanted,
        )
