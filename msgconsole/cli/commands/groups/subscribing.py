"""`msgcenter subscription create`: subscribe a group, or see what it would get by that."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from confdb.expressions.compiled import warnings_about
from confdb.services import Changed, ConfigService
from confdb.services.subscriptions import describe_subscription
from confdb.services.views import SubscriptionView
from msgbroker.contract.errors import SubscriptionDiffersError, ThingAlreadyExistsError
from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.carrying_out.following import how_to
from msgconsole.cli.carrying_out.if_not_exists import Existing, create_or_get
from msgconsole.cli.carrying_out.service import actor
from msgconsole.cli.commands.groups.options import Expression
from msgconsole.cli.commands.groups.previewing import tell_subscription, tell_warnings
from msgconsole.cli.printing.foretold import NO_CHANGE
from msgconsole.cli.printing.output import plain, print_json, print_line
from msgconsole.cli.printing.waiting import stands_though_ended
from msgconsole.cli.typed.options import (
    DEFAULT_NAMESPACE,
    AsJson,
    DryRun,
    EventCodeOrAll,
    IfNotExists,
    Namespace,
    NoWait,
    SubscriberGroup,
    Topic,
)
from msgconsole.operations.configuration.subscribing import WantedSubscription, subscribe
from msgconsole.operations.configuration.subscription_preview import SubscriptionPreview, preview_subscribe
from msgconsole.operations.stores import Stores


def create(
    group: SubscriberGroup,
    topic: Topic,
    event_code: EventCodeOrAll = "*",
    expression: Expression = None,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning",
            help="Deliver what is stored already, too; a job does, where the group has read past it for other "
            "subscriptions.",
        ),
    ] = False,
    if_not_exists: IfNotExists = False,
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Subscribe a group to a message type, and wait until every live broker delivers by it.

    A dry run tells what of the newest messages the group would get by it, and with --from-beginning how many of those
    that are stored. What an expression may not mean as it is, a warning on standard error says; with --json it is in
    `warnings`.

    Example: msgcenter subscription create SG_POINTS TP_TRADE EC_PAID --expression 'headers.region == "hz"'
    """
    wanted = WantedSubscription(
        namespace=namespace,
        group=group,
        topic=topic,
        event_code=event_code,
        expression=expression,
        from_beginning=from_beginning,
    )
    if dry_run:
        _preview(wanted, is_repeat_well=if_not_exists, as_json=as_json)
    else:
        _carry_out(wanted, is_repeat_well=if_not_exists, no_wait=no_wait, as_json=as_json)


def _carry_out(wanted: WantedSubscription, *, is_repeat_well: bool, no_wait: bool, as_json: bool) -> None:
    """Subscribe a group. *is_repeat_well*: a subscription that is there already, and as it is wanted, will do."""
    name = describe_subscription(wanted.group, wanted.topic, wanted.event_code)
    existing = Existing(wanted.namespace, "subscription", name, partial(_get_same, wanted))
    jobs: list[int | None] = []

    async def run(stores: Stores) -> tuple[Changed[SubscriptionView], bool]:
        async def make(_: ConfigService) -> Changed[SubscriptionView]:
            done = await subscribe(stores, wanted, actor=actor())
            jobs.append(done.job_id)
            return done.made

        service = stores.service(actor())
        with stands_though_ended(f"The subscription of {wanted.group} to {wanted.topic}/{wanted.event_code}") as stands:
            made, is_new = await create_or_get(service, make, existing if is_repeat_well else None)
            stands()
            if not no_wait:
                await service.wait_until_active(made.version, group=wanted.group)
        return made, is_new

    made, is_new = act(run)
    said: dict[str, Any] = {"config_version": made.version, "is_active": not no_wait}
    created = {"created": is_new} if is_repeat_well else {}
    _tell_made(made.thing, said | {"job_id": jobs[0] if jobs else None} | created, is_new=is_new, as_json=as_json)


async def _get_same(wanted: WantedSubscription, service: ConfigService) -> SubscriptionView:
    """Return the subscription that is there; refuse one that is not as it is wanted."""
    found = await service.subscriptions.get(wanted.namespace, wanted.group, wanted.topic, wanted.event_code)
    _refuse_other(found, wanted.expression, from_beginning=wanted.from_beginning)
    return found


def _tell_made(made: SubscriptionView, said: dict[str, Any], *, is_new: bool, as_json: bool) -> None:
    warnings = () if made.expression is None else warnings_about(made.expression)
    if as_json:
        print_json(plain(made) | said | {"warnings": warnings})
        return
    state = "active" if said["is_active"] else "registered"
    exists = "" if is_new else "exists already, and "
    print_line(f"The subscription of {made.group} to {made.topic}/{made.event_code} {exists}is {state}.")
    if said["job_id"] is not None:
        follow = how_to("follow", said["job_id"], made.namespace)
        print_line(f"Job {said['job_id']} delivers what was stored before: {follow}")
    tell_warnings(warnings)


def _refuse_other(found: SubscriptionView, expression: str | None, *, from_beginning: bool) -> None:
    """Raise SubscriptionDiffersError or ThingAlreadyExistsError where the subscription is not the one asked for.

    No expression is a wish as well: for every message of the type.
    """
    if found.expression != expression:
        raise SubscriptionDiffersError(found.group, found.topic, found.event_code, found.expression, expression)
    if from_beginning and any(found.start_offsets.values()):
        name = describe_subscription(found.group, found.topic, found.event_code)
        raise ThingAlreadyExistsError("subscription", name, "a later start, not from the beginning")


def _preview(wanted: WantedSubscription, *, is_repeat_well: bool, as_json: bool) -> None:
    """Tell what subscribing would mean, or that it is so already."""

    async def run(stores: Stores) -> SubscriptionPreview | None:
        try:
            return await preview_subscribe(stores, wanted)
        except ThingAlreadyExistsError:
            if not is_repeat_well:
                raise
            await _get_same(wanted, stores.service(actor()))
            return None

    preview = act(run)
    if preview is not None:
        tell_subscription(preview, f"{wanted.topic}/{wanted.event_code}", as_json=as_json)
    elif as_json:
        print_json({"changes": []})
    else:
        print_line(NO_CHANGE)
