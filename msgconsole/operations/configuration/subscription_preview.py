"""What a subscription that is made, changed or deleted would mean for its group: the dry runs of these changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from confdb.expressions.compiled import compile_expression, cost_of_expression, warnings_about
from confdb.routes import Snapshot, SubscriptionMode
from confdb.services import SubscriptionView
from confdb.services.changes import Rehearsed
from msgbroker.contract.limits import EXPRESSION_COST_MAX
from msgbroker.engine.selection import selection_of
from msgbroker.engine.stress import StressGate
from msgconsole.operations.configuration.activity import Activity, find_activity
from msgconsole.operations.configuration.deletions import Use, find_subscription_use
from msgconsole.operations.configuration.foretelling import Foretold
from msgconsole.operations.configuration.newest import NamedType, foretell_group, read_newest
from msgconsole.operations.configuration.rehearsing import FieldChange, changed_fields, rehearse
from msgconsole.operations.configuration.subscribing import WantedSubscription, plan_stored, register
from msgconsole.operations.counting import Counted, OffsetsOfQueue, are_cheap, count_selected, denied_to
from msgconsole.operations.stores import Stores
from msgconsole.operations.subscribed import get_group, get_topic
from msgdb.log.queues import list_topic_queues
from msgdb.log.reads import first_offsets, next_offsets
from msgdb.postgres.connections import Connection


@dataclass(frozen=True, slots=True)
class SubscriptionPreview:
    """What would be different."""

    changes: tuple[FieldChange, ...]
    """Nothing: all is so already."""
    foretold: Foretold
    """By the newest messages of the type, for all subscriptions of the group together."""
    is_all: bool
    """Whether these are all messages of the type that the log has."""
    cost_steps: int | None
    """What evaluating the expression on a message may cost; None: there is none. `cost_steps_max` is the most that is
    taken."""
    warnings: tuple[str, ...]
    """Where the expression may not mean what it says."""
    group_is_paused: bool
    """Whether the group is handed nothing until it is resumed."""
    from_beginning: bool = False
    """Whether what is stored would be delivered, too: first of all, or by a job (`by_job`)."""
    begins_at: Mapping[int, int] | None = None
    """Of one that is made: at which offset of each queue it would begin, or a later one. A queue that is not named
    begins with its first message."""
    stored: Counted | None = None
    """Of one from the beginning: what of the stored messages would be delivered. None as well where another expression
    of the group costs too much to be tried on them."""
    by_job: bool = False
    """Whether a job would deliver them: the group has read past them."""
    activity: Activity | None = None
    """What the group is at, where the subscription would be paused."""
    cost_steps_max: int = EXPRESSION_COST_MAX


@dataclass(frozen=True, slots=True)
class UnsubscribePreview:
    """What would be lost."""

    use: Use
    """Where it is in use, deleting it is refused, unless by force."""
    foretold: Foretold
    """By the newest messages of the type, for what would be left of the group's subscriptions."""
    is_all: bool
    """Whether these are all messages of the type that the log has."""


async def preview_subscribe(stores: Stores, wanted: WantedSubscription, *, reason: str = "") -> SubscriptionPreview:
    """Return what subscribing a group would mean. Changes nothing. Raises as `subscribe` does, and LookTooLongError."""
    (made, has_passed), rehearsed = await rehearse(stores, lambda service: register(service, wanted), reason=reason)
    asked = NamedType(wanted.namespace, wanted.group, wanted.topic, wanted.event_code)
    preview = await _preview(stores, rehearsed, asked, made.thing)
    stored = await _count_stored(stores, rehearsed.after, made.thing) if wanted.from_beginning else None
    return replace(
        preview,
        from_beginning=wanted.from_beginning,
        begins_at=made.thing.start_offsets,
        stored=stored,
        by_job=has_passed,
    )


async def preview_subscription_update(
    stores: Stores,
    asked: NamedType,
    *,
    mode: SubscriptionMode | None = None,
    expression: str | None = None,
    paused: bool | None = None,
    reason: str = "",
) -> SubscriptionPreview:
    """Return what changing a subscription in place would mean. Changes nothing.

    Raises as `Subscriptions.update` does, and LookTooLongError.
    """
    changed, rehearsed = await rehearse(
        stores,
        lambda service: service.subscriptions.update(*asked, mode=mode, expression=expression, paused=paused),
        reason=reason,
    )
    preview = await _preview(stores, rehearsed, asked, changed.thing)
    if any(change.field == "paused" and change.after for change in preview.changes):
        activity, _ = await find_activity(stores, asked.namespace, asked.group, asked.topic)
        return replace(preview, activity=activity)
    return preview


async def preview_unsubscribe(stores: Stores, asked: NamedType, *, reason: str = "") -> UnsubscribePreview:
    """Return who uses a subscription, and what of the newest messages its group would get without it.

    Changes nothing, and is not refused where it is in use. Raises as `Subscriptions.delete` does, and LookTooLongError.
    """
    _, rehearsed = await rehearse(stores, lambda service: service.subscriptions.delete(*asked), reason=reason)
    topic = get_topic(rehearsed.before, asked.namespace, asked.topic)
    newest = await read_newest(stores, topic.topic_id, asked.event_code)
    foretold = await foretell_group(newest.messages, rehearsed.before, rehearsed.after, asked)
    use = await find_subscription_use(stores, *asked)
    return UnsubscribePreview(use, foretold, is_all=newest.is_all and not foretold.is_cut)


async def _preview(
    stores: Stores, rehearsed: Rehearsed, asked: NamedType, thing: SubscriptionView
) -> SubscriptionPreview:
    topic = get_topic(rehearsed.before, asked.namespace, asked.topic)
    newest = await read_newest(stores, topic.topic_id, asked.event_code)
    foretold = await foretell_group(newest.messages, rehearsed.before, rehearsed.after, asked)
    expression = thing.expression
    return SubscriptionPreview(
        changes=changed_fields(rehearsed),
        foretold=foretold,
        is_all=newest.is_all and not foretold.is_cut,
        cost_steps=None if expression is None else cost_of_expression(expression).steps,
        warnings=() if expression is None else warnings_about(expression),
        group_is_paused=get_group(rehearsed.after, asked.namespace, asked.group).paused,
    )


async def _count_stored(stores: Stores, snapshot: Snapshot, made: SubscriptionView) -> Counted | None:
    """Return how many of the stored messages a subscription from the beginning would deliver."""
    group, topic = get_group(snapshot, made.namespace, made.group), get_topic(snapshot, made.namespace, made.topic)
    if not are_cheap(group, topic):
        return None
    spec = await plan_stored(stores, snapshot, made)
    async with stores.messages.looking() as conn:
        ranges = list(spec.ranges) or await _whole_log(conn, topic.topic_id)
        is_denied = denied_to(group, topic, StressGate(snapshot))
        return await count_selected(conn, ranges, selection_of(spec, compile_expression), is_denied)


async def _whole_log(conn: Connection, topic_id: int) -> list[OffsetsOfQueue]:
    """Return all there is of a topic: its lanes would begin with it."""
    queue_ids = [queue.queue_id for queue in await list_topic_queues(conn, topic_id)]
    firsts, ends = await first_offsets(conn, queue_ids), await next_offsets(conn, queue_ids)
    return [(queue_id, firsts[queue_id], ends[queue_id]) for queue_id in queue_ids if firsts[queue_id] < ends[queue_id]]
