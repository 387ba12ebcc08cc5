"""`msgcenter subscription`: which group wants which messages."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from confdb.expressions.compiled import warnings_about
from confdb.routes import SubscriptionMode
from confdb.services import Changed, ConfigService
from confdb.services.subscriptions import describe_subscription
from confdb.services.views import SubscriptionView
from msgbroker.contract.errors import SubscriptionDiffersError, ThingAlreadyExistsError
from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.carrying_out.following import how_to
from msgconsole.cli.carrying_out.if_not_exists import Existing, create_or_get
from msgconsole.cli.carrying_out.service import actor, carry_out, deleted_by, look_up, look_up_all
from msgconsole.cli.carrying_out.store import read_store
from msgconsole.cli.commands.groups.pausing import told_change
from msgconsole.cli.printing.in_use import tell_use
from msgconsole.cli.printing.output import plain, print_json, print_line, print_rows, print_thing
from msgconsole.cli.typed.given import require_a_change
from msgconsole.cli.typed.options import (
    DEFAULT_NAMESPACE,
    AsJson,
    DryRun,
    EventCodeOrAll,
    Force,
    IfNotExists,
    Limit,
    Namespace,
    NoWait,
    OfGroup,
    OfTopic,
    ReasonOfChange,
    ReasonToDelete,
    SubscriberGroup,
    Topic,
)
from msgconsole.operations.configuration.deletions import delete_subscription, find_subscription_use
from msgconsole.operations.configuration.subscribing import WantedSubscription, subscribe, update_subscription
from msgconsole.operations.stores import Stores
from msgdb.reports.expression_failures import find_expression_failure

app = typer.Typer(no_args_is_help=True)

_Expression = Annotated[
    str | None,
    typer.Option(
        "--expression",
        help="Only messages whose headers satisfy this (CEL over `headers`). A message without a header that it "
        'reads does not match, with `!=` as well: ask first, \'"region" in headers && headers.region != "hz"\' '
        "(a warning says where). "
        "Cheap: comparing headers by name, `in` a list, one macro. Refused as too costly (50,000 steps with 64 "
        "headers): a macro inside of another, a long pattern for `matches` or one from the message.",
    ),
]


@app.command("create")
def create(
    group: SubscriberGroup,
    topic: Topic,
    event_code: EventCodeOrAll = "*",
    expression: _Expression = None,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning",
            help="Deliver what is stored already, too; a job does, where the group has read past it for other "
            "subscriptions.",
        ),
    ] = False,
    if_not_exists: IfNotExists = False,
    no_wait: NoWait = False,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Subscribe a group to a message type, and wait until every live broker delivers by it.

    What an expression may not mean as it is, a warning on standard error says; with --json it is in `warnings`.

    Example: msgcenter subscription create SG_POINTS TP_TRADE EC_PAID --expression 'headers.region == "hz"'
    """

    async def get(service: ConfigService) -> SubscriptionView:
        found = await service.subscriptions.get(namespace, group, topic, event_code)
        _refuse_other(found, expression, from_beginning=from_beginning)
        return found

    existing = Existing(namespace, "subscription", describe_subscription(group, topic, event_code), get)

    wanted = WantedSubscription(
        namespace=namespace,
        group=group,
        topic=topic,
        event_code=event_code,
        expression=expression,
        from_beginning=from_beginning,
    )
    jobs: list[int | None] = []

    async def run(stores: Stores) -> tuple[Changed[SubscriptionView], bool]:
        async def make(_: ConfigService) -> Changed[SubscriptionView]:
            done = await subscribe(stores, wanted, actor=actor())
            jobs.append(done.job_id)
            return done.made

        service = stores.service(actor())
        made, is_new = await create_or_get(service, make, existing if if_not_exists else None)
        if not no_wait:
            await service.wait_until_active(made.version, group=group)
        return made, is_new

    made, is_new = act(run)
    said: dict[str, Any] = {"config_version": made.version, "is_active": not no_wait}
    created = {"created": is_new} if if_not_exists else {}
    _tell_made(made.thing, said | {"job_id": jobs[0] if jobs else None} | created, is_new=is_new, as_json=as_json)


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
    for warning in warnings:
        typer.echo(f"Warning: {warning}.", err=True)


def _refuse_other(found: SubscriptionView, expression: str | None, *, from_beginning: bool) -> None:
    """Raise SubscriptionDiffersError or ThingAlreadyExistsError where the subscription is not the one asked for.

    No expression is a wish as well: for every message of the type.
    """
    if found.expression != expression:
        raise SubscriptionDiffersError(found.group, found.topic, found.event_code, found.expression, expression)
    if from_beginning and any(found.start_offsets.values()):
        name = describe_subscription(found.group, found.topic, found.event_code)
        raise ThingAlreadyExistsError("subscription", name, "a later start, not from the beginning")


@app.command("show")
def show(
    group: SubscriberGroup,
    topic: Topic,
    event_code: EventCodeOrAll = "*",
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Show a subscription, and how often its expression failed on a message.

    An expression fails where a header that it reads is missing, or cannot be converted: that is no match. `failures`
    counts it since `first failed at`, brokers add to it every ten seconds, and `last failed header` is the one that was
    missing the last time. Thirty days after the last failure it is forgotten.

    Example: msgcenter subscription show SG_POINTS TP_TRADE EC_PAID
    """
    found = look_up(lambda service: service.subscriptions.get(namespace, group, topic, event_code))
    failed = None
    if found.expression is not None:
        failed = read_store(lambda connection: find_expression_failure(connection, found.subscription_id))
    failures = {
        "failures": failed.failures if failed else 0,
        "last_failed_header": failed.last_header if failed else None,
        "last_error": failed.last_error or None if failed else None,
        "first_failed_at": failed.first_failed_at if failed else None,
        "last_failed_at": failed.last_failed_at if failed else None,
    }
    print_thing(plain(found) | failures, as_json=as_json)


@app.command("list")
def list_(
    group: OfGroup = None,
    topic: OfTopic = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    limit: Limit = 1_000,
    as_json: AsJson = False,
) -> None:
    """List the subscriptions.

    Example: msgcenter subscription list --group SG_POINTS
    """
    found = look_up_all(
        lambda service, after, count: service.subscriptions.list(
            namespace, group=group, topic=topic, after=after, limit=count
        ),
        first=0,
        count_max=limit,
    )
    columns = ["group", "topic", "event_code", "mode", "expression"]
    if any(each.requires for each in found):
        columns.append("requires")
    print_rows(found, columns, as_json=as_json, empty="No subscriptions.")


@app.command("update")
def update(
    context: typer.Context,
    group: SubscriberGroup,
    topic: Topic,
    event_code: EventCodeOrAll = "*",
    expression: _Expression = None,
    direct: Annotated[
        bool, typer.Option("--direct", help="Every message of the type: no expression any more.")
    ] = False,
    paused: Annotated[
        bool | None, typer.Option("--pause/--resume", help="Let what only this subscription wants wait, or come.")
    ] = None,
    reason: ReasonOfChange = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Change a subscription in place: the group keeps its place on the topic.

    It is told from which offset of each queue on another expression holds for certain; what lies before, and was not
    read yet, may be selected by either. What a paused subscription wants, and no other of its group, waits in order,
    up to 10,000 messages a queue: then the group's lane there waits as well. Nothing is lost, for as long as messages
    are kept.

    Example: msgcenter subscription update SG_POINTS TP_TRADE EC_PAID --expression 'headers.region == "hz"'
    """
    require_a_change(context)
    changed, held = act(
        lambda stores: update_subscription(
            stores,
            namespace,
            group,
            topic,
            event_code,
            actor=actor(),
            reason=reason or "",
            mode=SubscriptionMode.DIRECT if direct else None,
            expression=expression,
            paused=paused,
        )
    )
    warnings = () if expression is None else warnings_about(expression)
    if as_json:
        print_json(plain(changed.thing) | {"config_version": changed.version, "holds_from": held, "warnings": warnings})
        return
    print_line(told_change(f"The subscription of {group} to {topic}/{event_code}", context, paused=paused))
    if expression is not None or direct:
        print_line("For certain it holds from these offsets on:")
        print_rows(held, ("queue_id", "from_offset"), as_json=False, empty="The topic has no queue yet.")
    for warning in warnings:
        typer.echo(f"Warning: {warning}.", err=True)


@app.command("delete")
def delete(
    group: SubscriberGroup,
    topic: Topic,
    event_code: EventCodeOrAll = "*",
    force: Force = False,
    dry_run: DryRun = False,
    reason: ReasonToDelete = None,
    no_wait: NoWait = False,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Unsubscribe a group from a message type.

    Refused (IN_USE) while instances of the group are connected, or it has not settled all of the topic.

    Example: msgcenter subscription delete SG_POINTS TP_TRADE EC_PAID --dry-run
    """
    if dry_run:
        use = act(lambda stores: find_subscription_use(stores, namespace, group, topic, event_code))
        tell_use(use, as_json=as_json)
        return
    by = deleted_by(reason, force=force)
    carry_out(
        lambda stores: delete_subscription(
            stores,
            namespace,
            group,
            topic,
            event_code,
            by=by,
        ),
        lambda gone: f"The subscription of {gone.group} to {gone.topic}/{gone.event_code} is deleted.",
        as_json=as_json,
        wait=not no_wait,
    )
