"""Replaying what the log holds to one group: what would happen, and the job that does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from confdb.expressions.compiled import compile_expression
from confdb.features import Feature
from confdb.routes import GroupRoute, Snapshot, TopicRoute
from confdb.snapshot import load_snapshot
from msgbroker.contract.errors import InvalidSettingError, NothingSelectedError, ThingNotFoundError
from msgbroker.engine.selection import selection_of
from msgbroker.engine.stress import StressGate
from msgconsole.operations.counting import asked_by, count_selected, denied_to
from msgconsole.operations.stores import Stores
from msgconsole.operations.subscribed import get_group, get_subscribed_topic
from msgconsole.operations.times import check_order
from msgdb.jobs.records import RATE_DEFAULT, JobKind, NewJob
from msgdb.jobs.specs import Place, ReplaySpec
from msgdb.jobs.steering import begin_job
from msgdb.log.copies import find_copies
from msgdb.log.queues import list_topic_queues
from msgdb.log.reads import first_offsets, next_offsets, offset_at_time
from msgdb.postgres.binary_rows import micros_of
from msgdb.postgres.connections import Connection
from msgdb.postgres.history import get_history

IDS_MAX: Final = 1_000
"""So many messages may be named one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedReplay:
    """What somebody wants to be replayed, and to which group. Raises InvalidSettingError where that is two things."""

    namespace: str
    group: str
    topic: str | None = None
    event_code: str | None = None
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    stored_from: datetime | None = None
    stored_before: datetime | None = None
    message_ids: tuple[UUID, ...] = ()
    """Or these messages, and nothing else is given."""
    whatever_it_asks_for: bool = False
    """Not only what the group's subscriptions ask for."""

    def __post_init__(self) -> None:
        conditions = (self.topic, self.event_code, self.key, self.headers or None, self.stored_from, self.stored_before)
        if self.message_ids and any(each is not None for each in conditions):
            # Of the messages that are named all would be replayed, whatever the conditions say.
            raise InvalidSettingError("ids", "must be given alone: no condition goes with them")


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """What a replay would do."""

    spec: ReplaySpec
    thing: str
    looked_at: int
    """How many messages there are between the times that were given."""
    replayed: int
    """How many of them would be stored once more for the group."""
    denied: int
    """How many of these are stress messages that the group may not see: they are settled without being delivered."""
    is_exact: bool
    """Whether that was counted; else it is estimated from some of them."""


@dataclass(frozen=True, slots=True)
class BegunReplay:
    """A replay that was begun."""

    job_id: int
    plan: ReplayPlan


async def plan_replay(stores: Stores, wanted: WantedReplay) -> ReplayPlan:
    """Return what a replay would do. Changes nothing.

    Raises a NotFoundError for what is not there, InvalidSettingError for times between which nothing can lie,
    ExpressionTooCostlyError where a subscription's expression costs more than any may that is registered now.
    """
    check_order(wanted.stored_from, wanted.stored_before)
    snapshot = await load_snapshot(stores.config)
    group = get_group(snapshot, wanted.namespace, wanted.group)
    async with stores.messages.looking() as conn:
        history = await get_history(conn)
        if wanted.message_ids:
            return await _plan_places(conn, snapshot, group, wanted, str(history.history_id))
        return await _plan_ranges(conn, snapshot, group, wanted, str(history.history_id))


async def replay(
    stores: Stores, wanted: WantedReplay, *, actor: str, reason: str, rate: float = RATE_DEFAULT
) -> BegunReplay:
    """Begin a job that delivers again what is *wanted*, to one group and without touching where that group is.

    Raises as `plan_replay` does, and NothingSelectedError, and FeatureNotEverywhereError.
    """
    await stores.service(actor).check_everywhere(Feature.JOBS)
    plan = await plan_replay(stores, wanted)
    if not plan.replayed and plan.is_exact:
        raise NothingSelectedError("message")
    spec = plan.spec.as_json()
    job = NewJob(JobKind.REPLAY, wanted.namespace, plan.thing, spec, plan.replayed, rate)
    detail = {name: value for name, value in spec.items() if name != "places"} | {"is_exact": plan.is_exact}
    async with stores.messages.transaction() as conn:
        return BegunReplay(await begin_job(conn, job, actor=actor, reason=reason, detail=detail), plan)


async def _plan_places(
    conn: Connection, snapshot: Snapshot, group: GroupRoute, wanted: WantedReplay, history_id: str
) -> ReplayPlan:
    if len(wanted.message_ids) > IDS_MAX:
        raise InvalidSettingError("ids", f"must be {IDS_MAX:,} at most")
    gate = StressGate(snapshot)
    places: list[Place] = []
    denied = 0
    # Each once, in the order in which they were named.
    for message_id in dict.fromkeys(wanted.message_ids):
        found, _ = await find_copies(conn, message_id, wanted.namespace, limit=1)
        if not found:
            raise ThingNotFoundError("message", str(message_id), namespace=wanted.namespace)
        (row,) = found
        topic = get_subscribed_topic(snapshot, group, row.topic)
        denied += row.stress and not gate.allows(group.group_id, topic.topic_id, row.event_code)
        places.append(Place(row.queue_id, row.queue_offset, row.stored_at_us))
    spec = ReplaySpec(group_id=group.group_id, history_id=history_id, places=tuple(places))
    count = len(places)
    thing = f"{count:,} message{'s' if count != 1 else ''} to {group.name}"
    return ReplayPlan(spec, thing, count, count, denied, is_exact=True)


async def _plan_ranges(
    conn: Connection, snapshot: Snapshot, group: GroupRoute, wanted: WantedReplay, history_id: str
) -> ReplayPlan:
    if wanted.topic is None:
        raise InvalidSettingError("topic", "must be given, or the ids of messages")
    topic = get_subscribed_topic(snapshot, group, wanted.topic)
    asked = None if wanted.whatever_it_asks_for else asked_by(group, topic)
    spec = ReplaySpec(
        group_id=group.group_id,
        history_id=history_id,
        ranges=tuple(await _ranges(conn, topic, wanted)),
        event_code=wanted.event_code,
        key=wanted.key,
        headers=wanted.headers,
        asked=asked,
    )
    is_denied = denied_to(group, topic, StressGate(snapshot))
    counted = await count_selected(conn, spec.ranges, selection_of(spec, compile_expression), is_denied)
    thing = f"{wanted.topic}{'' if wanted.event_code is None else f'/{wanted.event_code}'} to {group.name}"
    return ReplayPlan(spec, thing, counted.looked_at, counted.selected, counted.denied, is_exact=counted.is_exact)


async def _ranges(conn: Connection, topic: TopicRoute, wanted: WantedReplay) -> list[tuple[int, int, int]]:
    queue_ids = [queue.queue_id for queue in await list_topic_queues(conn, topic.topic_id)]
    firsts, ends = await first_offsets(conn, queue_ids), await next_offsets(conn, queue_ids)
    ranges: list[tuple[int, int, int]] = []
    for queue_id in queue_ids:
        first, end = firsts[queue_id], ends[queue_id]
        if wanted.stored_from is not None:
            first = await offset_at_time(conn, queue_id, micros_of(wanted.stored_from))
        if wanted.stored_before is not None:
            end = min(end, await offset_at_time(conn, queue_id, micros_of(wanted.stored_before)))
        if first < end:
            ranges.append((queue_id, first, end))
    return ranges
