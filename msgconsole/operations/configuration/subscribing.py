"""Subscribing a group, from a topic's beginning if that is wanted, and changing how it subscribes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from confdb.features import Feature
from confdb.routes import Snapshot, SubscriptionMode
from confdb.services import Changed, ConfigService
from confdb.services.subscriptions import describe_subscription
from confdb.services.views import SubscriptionView
from confdb.snapshot import load_snapshot
from msgbroker.contract.errors import BeginningPassedError
from msgconsole.operations.stores import Stores
from msgdb.jobs.records import JobKind, NewJob
from msgdb.jobs.specs import AskedBefore, AskedFor, ReplaySpec
from msgdb.jobs.steering import begin_job
from msgdb.log.queues import list_topic_queues
from msgdb.log.reads import next_offsets
from msgdb.postgres.history import get_history

_REASON: Final = "subscribed from the beginning"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSubscription:
    """How a group is to subscribe."""

    namespace: str
    group: str
    topic: str
    event_code: str
    expression: str | None = None
    from_beginning: bool = False
    """With what is stored already."""


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A subscription that was made."""

    made: Changed[SubscriptionView]
    job_id: int | None = None
    """The job that delivers what was stored before, where the group had read past it; None: its lanes do."""


@dataclass(frozen=True, slots=True)
class Held:
    """From where on a change of a subscription holds for certain: what lies before may be selected as it was."""

    queue_id: int
    from_offset: int


async def subscribe(stores: Stores, wanted: WantedSubscription, *, actor: str) -> Subscribed:
    """Subscribe a group to a message type. `ConfigService.wait_until_active` tells when every broker delivers by it.

    From the beginning, where the group has read past that for other subscriptions of its own, a job delivers what is
    stored: what this subscription asks for, and those did not. Raises as `Subscriptions.create` does.
    """
    made, has_passed = await register(stores.service(actor), wanted)
    return Subscribed(made, await _deliver_stored(stores, made.thing, actor) if has_passed else None)


async def register(service: ConfigService, wanted: WantedSubscription) -> tuple[Changed[SubscriptionView], bool]:
    """Register a subscription; return whether its group had read past the beginning that it is wanted from."""
    name = (wanted.namespace, wanted.group, wanted.topic, wanted.event_code)
    try:
        made = await service.subscriptions.create(
            *name, expression=wanted.expression, from_beginning=wanted.from_beginning
        )
    except BeginningPassedError:
        await service.check_everywhere(Feature.JOBS)
        return await service.subscriptions.create(*name, expression=wanted.expression), True
    return made, False


async def update_subscription(
    stores: Stores,
    namespace: str,
    group: str,
    topic: str,
    event_code: str,
    *,
    actor: str,
    reason: str = "",
    mode: SubscriptionMode | None = None,
    expression: str | None = None,
    paused: bool | None = None,
    on_registered: Callable[[], None] = lambda: None,
) -> tuple[Changed[SubscriptionView], list[Held]]:
    """Change a subscription in place, and return from which offsets on that holds, once every live broker obeys.

    The group keeps its place. *on_registered* is called once the change is made, and stands whatever comes. Raises as
    `Subscriptions.update` does, and SubscriptionNotActiveError.
    """
    service = stores.service(actor, reason)
    changed = await service.subscriptions.update(
        namespace, group, topic, event_code, mode=mode, expression=expression, paused=paused
    )
    on_registered()
    await service.wait_until_active(changed.version, group=group)
    snapshot = await load_snapshot(stores.config)
    route = snapshot.topics.get((namespace, topic))
    async with stores.messages.looking() as conn:
        queues = [] if route is None else await list_topic_queues(conn, route.topic_id)
        ends = await next_offsets(conn, [queue.queue_id for queue in queues])
    return changed, [Held(queue_id, ends[queue_id]) for queue_id in sorted(ends)]


async def plan_stored(stores: Stores, snapshot: Snapshot, made: SubscriptionView) -> ReplaySpec:
    """Return what a subscription is given of what was stored before its start, and its group was not given before."""
    route = snapshot.groups[made.namespace, made.group]
    topic = snapshot.topics[made.namespace, made.topic]
    async with stores.messages.looking() as conn:
        history = await get_history(conn)
        queues = await list_topic_queues(conn, topic.topic_id)
    ranges = [
        (queue.queue_id, queue.start_offset, made.start_offsets.get(queue.queue_id, 0))
        for queue in queues
        if queue.start_offset < made.start_offsets.get(queue.queue_id, 0)
    ]
    return ReplaySpec(
        group_id=route.group_id,
        history_id=str(history.history_id),
        ranges=tuple(ranges),
        asked=(AskedFor(made.event_code, made.expression),),
        unless=tuple(
            AskedBefore(other.event_code, other.expression, dict(other.start_offsets))
            for other in route.subscriptions
            if other.topic_id == topic.topic_id and other.subscription_id != made.subscription_id
        ),
    )


async def _deliver_stored(stores: Stores, made: SubscriptionView, actor: str) -> int:
    """Begin a job that delivers all from before the subscription's start that its group was not given before."""
    spec = await plan_stored(stores, await load_snapshot(stores.config), made)
    name = describe_subscription(made.group, made.topic, made.event_code)
    stored = sum(end - first for _, first, end in spec.ranges)
    job = NewJob(JobKind.REPLAY, made.namespace, f"{name}, from the beginning", spec.as_json(), stored)
    async with stores.messages.transaction() as conn:
        return await begin_job(conn, job, actor=actor, reason=_REASON, detail={"subscription": name})
