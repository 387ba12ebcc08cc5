"""`msgcenter subscription`: which group wants which messages."""

from __future__ import annotations

import typer

from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.carrying_out.service import carry_out, deleted_by, look_up, look_up_all
from msgconsole.cli.carrying_out.store import read_store
from msgconsole.cli.commands.groups import subscribing, subscription_update
from msgconsole.cli.printing.foretold import tell_foretold
from msgconsole.cli.printing.in_use import tell_use
from msgconsole.cli.printing.output import plain, print_rows, print_thing
from msgconsole.cli.typed.options import (
    DEFAULT_NAMESPACE,
    AsJson,
    DryRun,
    EventCodeOrAll,
    Force,
    Limit,
    Namespace,
    NoWait,
    OfGroup,
    OfTopic,
    ReasonToDelete,
    SubscriberGroup,
    Topic,
)
from msgconsole.operations.configuration.deletions import delete_subscription
from msgconsole.operations.configuration.newest import NamedType
from msgconsole.operations.configuration.subscription_preview import preview_unsubscribe
from msgdb.reports.expression_failures import find_expression_failure

app = typer.Typer(no_args_is_help=True)
app.command("create")(subscribing.create)
app.command("update")(subscription_update.update)


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
        asked = NamedType(namespace, group, topic, event_code)
        preview = act(lambda stores: preview_unsubscribe(stores, asked, reason=reason or ""))
        if not as_json:
            tell_foretold(preview.foretold, f"{topic}/{event_code}", is_all=preview.is_all)
        tell_use(preview.use, as_json=as_json, foretold=preview.foretold, is_all=preview.is_all)
        return
    by = deleted_by(reason, force=force)
    carry_out(
        lambda stores: delete_subscription(stores, namespace, group, topic, event_code, by=by),
        lambda gone: f"The subscription of {gone.group} to {gone.topic}/{gone.event_code} is deleted.",
        as_json=as_json,
        wait=not no_wait,
    )
