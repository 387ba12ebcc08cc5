"""What a change of a subscriber group would mean for what it is at: its dry run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypedDict, Unpack

from confdb.routes import GroupRoute
from msgbroker.engine.retry import RetryPolicy
from msgconsole.operations.brokers.connected import InstanceRow
from msgconsole.operations.configuration.activity import Activity, find_activity
from msgconsole.operations.configuration.rehearsing import FieldChange, changed_fields, rehearse
from msgconsole.operations.stores import Stores
from msgconsole.operations.subscribed import get_group
from msgdb.lanes.attempts import count_by_attempt

_LOOKED_AT: Final = frozenset({"paused", "ack_timeout_seconds", "handle_seconds_max", "unsettled_max"})
"""The fields for which it matters what the group is at."""
_ATTEMPTS: Final = frozenset({"attempts_max", "retry_schedule_seconds"})


class GroupSettings(TypedDict, total=False):
    """What is to be changed; what is None, or not given, stays."""

    ack_timeout_seconds: float | None
    handle_seconds_max: float | None
    retry_schedule_seconds: Sequence[float] | None
    attempts_max: int | None
    unsettled_max: int | None
    paused: bool | None
    description: str | None


@dataclass(frozen=True, slots=True)
class WaitingAttempts:
    """What other attempts would do to messages that wait for one, as of the last checkpoint."""

    waiting: int
    last_before: int
    """How many of them become dead letters if their next attempt fails, ..."""
    last_after: int
    """... and how many would."""
    newly_last: int
    """How many of these would not now."""
    no_longer_last: int
    """How many that would now would be tried again."""


@dataclass(frozen=True, slots=True)
class Holding:
    """An instance that holds more than it could be given."""

    instance_id: str
    broker: str
    unsettled: int


@dataclass(frozen=True, slots=True)
class GroupPreview:
    """What would be different."""

    changes: tuple[FieldChange, ...]
    """Nothing: all is so already."""
    activity: Activity | None = None
    """What the group is at, where that is concerned."""
    attempts: WaitingAttempts | None = None
    """Where attempts or their waits would change."""
    holding_more: tuple[Holding, ...] | None = None
    """Which instances hold more than they would be given, where that would change; brokers that have not answered are
    named in `activity`."""


async def preview_group_update(
    stores: Stores, namespace: str, group: str, *, reason: str = "", **settings: Unpack[GroupSettings]
) -> GroupPreview:
    """Return what changing a group would mean. Changes nothing.

    Raises as `SubscriberGroups.update` does, and LookTooLongError.
    """
    _, rehearsed = await rehearse(
        stores, lambda service: service.subscriber_groups.update(namespace, group, **settings), reason=reason
    )
    before, after = get_group(rehearsed.before, namespace, group), get_group(rehearsed.after, namespace, group)
    preview = GroupPreview(changed_fields(rehearsed))
    changed = {change.field for change in preview.changes}
    if changed & _LOOKED_AT:
        activity, instances = await find_activity(stores, namespace, group)
        holding = holding_more(instances, after.unsettled_max) if "unsettled_max" in changed else None
        preview = replace(preview, activity=activity, holding_more=holding)
    if changed & _ATTEMPTS:
        async with stores.messages.looking() as conn:
            waiting = await count_by_attempt(conn, after.group_id)
        preview = replace(preview, attempts=compare_attempts(waiting, _policy(before), _policy(after)))
    return preview


def compare_attempts(waiting: Mapping[int, int], before: RetryPolicy, after: RetryPolicy) -> WaitingAttempts:
    """Return what becomes of messages that wait, counted by the attempt that comes next. Pure."""

    def count(*, is_last_before: bool | None = None, is_last_after: bool | None = None) -> int:
        return sum(
            messages
            for attempt, messages in waiting.items()
            if is_last_before in {None, before.is_last(attempt)} and is_last_after in {None, after.is_last(attempt)}
        )

    return WaitingAttempts(
        waiting=count(),
        last_before=count(is_last_before=True),
        last_after=count(is_last_after=True),
        newly_last=count(is_last_before=False, is_last_after=True),
        no_longer_last=count(is_last_before=True, is_last_after=False),
    )


def holding_more(instances: Sequence[InstanceRow], unsettled_max: int) -> tuple[Holding, ...]:
    """Return the instances that hold more than that, those that hold most first. Pure."""
    holding = [
        Holding(each.instance_id, each.broker, each.unsettled) for each in instances if each.unsettled > unsettled_max
    ]
    return tuple(sorted(holding, key=lambda each: (-each.unsettled, each.instance_id)))


def _policy(route: GroupRoute) -> RetryPolicy:
    return RetryPolicy(route.retry_schedule_seconds, route.attempts_max)
