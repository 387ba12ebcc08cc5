"""`msgcenter group`: subscriber groups, and with --publisher the publisher groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar

import typer

from confdb.services.views import PublisherGroupView, SubscriberGroupView
from msgbroker.contract import limits
from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.carrying_out.if_not_exists import Existing
from msgconsole.cli.carrying_out.service import carry_out, change, check_reason, deleted_by, look_up, look_up_all
from msgconsole.cli.commands.groups import drain, errors, group_update, reset, unsettled
from msgconsole.cli.commands.groups.options import (
    AckTimeout,
    AttemptsMax,
    HandleMax,
    RetrySchedule,
    UnsettledMax,
    read_schedule,
)
from msgconsole.cli.printing.in_use import tell_use
from msgconsole.cli.printing.output import print_rows, print_thing
from msgconsole.cli.typed.options import (
    DEFAULT_NAMESPACE,
    AsJson,
    Description,
    DryRun,
    Force,
    GroupName,
    IfNotExists,
    Limit,
    Namespace,
    NoWait,
    ReasonToDelete,
)
from msgconsole.operations.configuration.deletions import delete_group, find_group_use

app = typer.Typer(no_args_is_help=True)

NumberT = TypeVar("NumberT", int, float)

_Publisher = Annotated[bool, typer.Option("--publisher", help="A publisher group, not a subscriber group.")]
_SUBSCRIBER_COLUMNS = (
    "name",
    "ack_timeout_seconds",
    "handle_seconds_max",
    "attempts_max",
    "unsettled_max",
    "paused",
    "description",
)


@app.command("create")
def create(
    name: GroupName,
    publisher: _Publisher = False,
    ack_timeout_seconds: AckTimeout = None,
    handle_seconds_max: HandleMax = None,
    retry_schedule: RetrySchedule = None,
    attempts_max: AttemptsMax = None,
    unsettled_max: UnsettledMax = None,
    description: Description = None,
    if_not_exists: IfNotExists = False,
    namespace: Namespace = DEFAULT_NAMESPACE,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Register a group.

    Example: msgcenter group create SG_POINTS --retry-schedule 10,30,60 --if-not-exists
    """
    described = {} if description is None else {"description": description}
    if publisher:
        _refuse_for_publishers(ack_timeout_seconds, handle_seconds_max, retry_schedule, attempts_max, unsettled_max)
        change(
            lambda service: service.publisher_groups.create(namespace, name, description=description or ""),
            lambda made: f"Publisher group {made.name} is registered.",
            as_json=as_json,
            wait=not no_wait,
            existing=_existing_publishers(namespace, name, described) if if_not_exists else None,
        )
        return
    schedule = read_schedule(retry_schedule)
    settings = {
        "ack_timeout_seconds": ack_timeout_seconds,
        "handle_seconds_max": handle_seconds_max,
        "retry_schedule_seconds": schedule,
        "attempts_max": attempts_max,
        "unsettled_max": unsettled_max,
    }
    wanted = {name: value for name, value in settings.items() if value is not None} | described
    change(
        lambda service: service.subscriber_groups.create(
            namespace,
            name,
            ack_timeout_seconds=_or(ack_timeout_seconds, limits.ACK_TIMEOUT_SECONDS_DEFAULT),
            handle_seconds_max=_or(handle_seconds_max, limits.HANDLE_SECONDS_DEFAULT),
            retry_schedule_seconds=limits.RETRY_SCHEDULE_SECONDS_DEFAULT if schedule is None else schedule,
            attempts_max=attempts_max,
            unsettled_max=_or(unsettled_max, limits.UNSETTLED_MAX_DEFAULT),
            description=description or "",
        ),
        lambda made: f"Group {made.name} is registered: {made.attempts_max} attempts, then a dead letter.",
        as_json=as_json,
        wait=not no_wait,
        existing=_existing_subscribers(namespace, name, wanted) if if_not_exists else None,
    )


@app.command("list")
def list_(
    publisher: _Publisher = False,
    namespace: Namespace = DEFAULT_NAMESPACE,
    limit: Limit = 1_000,
    as_json: AsJson = False,
) -> None:
    """List the groups.

    Example: msgcenter group list --json
    """
    if publisher:
        publishers = look_up_all(
            lambda service, after, count: service.publisher_groups.list(namespace, after=after, limit=count),
            first="",
            count_max=limit,
        )
        columns = ("name", "description", "created_at")
        print_rows(publishers, columns, as_json=as_json, empty="No publisher groups.")
        return
    subscribers = look_up_all(
        lambda service, after, count: service.subscriber_groups.list(namespace, after=after, limit=count),
        first="",
        count_max=limit,
    )
    least = ("handle_seconds_max", "unsettled_max", "ack_timeout_seconds")
    print_rows(subscribers, _SUBSCRIBER_COLUMNS, as_json=as_json, empty="No subscriber groups.", least=least)


@app.command("show")
def show(
    name: GroupName,
    publisher: _Publisher = False,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Show a group.

    Example: msgcenter group show SG_POINTS
    """
    if publisher:
        print_thing(look_up(lambda service: service.publisher_groups.get(namespace, name)), as_json=as_json)
    else:
        print_thing(look_up(lambda service: service.subscriber_groups.get(namespace, name)), as_json=as_json)


@app.command("delete")
def delete(
    name: GroupName,
    publisher: _Publisher = False,
    namespace: Namespace = DEFAULT_NAMESPACE,
    force: Force = False,
    dry_run: DryRun = False,
    reason: ReasonToDelete = None,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Delete a group with its subscriptions. One created later under its name is another group.

    Refused (IN_USE) while instances are connected or messages are not settled: nobody would be given those any more.

    Example: msgcenter group delete SG_POINTS --dry-run
    """
    if publisher:
        change(
            lambda service: service.publisher_groups.delete(namespace, name),
            lambda gone: f"Publisher group {gone.name} is deleted.",
            as_json=as_json,
            wait=not no_wait,
            reason=reason,
        )
        return
    if dry_run:
        check_reason(reason)
        tell_use(act(lambda stores: find_group_use(stores, namespace, name)), as_json=as_json)
        return
    by = deleted_by(reason, force=force)
    carry_out(
        lambda stores: delete_group(stores, namespace, name, by=by),
        lambda gone: f"Group {gone.name} is deleted.",
        as_json=as_json,
        wait=not no_wait,
    )


# Behind the others, as --help lists them in this order.
app.command("update")(group_update.update)
app.command("reset")(reset.reset)
app.command("unsettled")(unsettled.unsettled)
app.command("errors")(errors.errors)
app.command("drain")(drain.drain)


def _existing_publishers(namespace: str, name: str, wanted: Mapping[str, object]) -> Existing[PublisherGroupView]:
    return Existing(
        namespace, "publisher_group", name, lambda service: service.publisher_groups.get(namespace, name), wanted
    )


def _existing_subscribers(namespace: str, name: str, wanted: Mapping[str, object]) -> Existing[SubscriberGroupView]:
    return Existing(
        namespace, "subscriber_group", name, lambda service: service.subscriber_groups.get(namespace, name), wanted
    )


def _refuse_for_publishers(*settings: object) -> None:
    if any(setting is not None for setting in settings):
        message = "a publisher group has no delivery settings"
        raise typer.BadParameter(message, param_hint="--publisher")


def _or(value: NumberT | None, default: NumberT) -> NumberT:
    return default if value is None else value
