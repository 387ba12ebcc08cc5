"""Resetting a group: where its lanes would go and what that means, and doing it, whoever is connected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple

from confdb.expressions.compiled import compile_expression
from confdb.features import Feature
from confdb.routes import GroupRoute, TopicRoute
from confdb.snapshot import load_snapshot
from msgbroker.contract.errors import (
    InvalidSettingError,
    ThingNotFoundError,
)
from msgbroker.engine.selection import Selection, Wish
from msgbroker.engine.stress import StressGate
from msgconsole.operations.counting import asked_by, count_selected, denied_to
from msgconsole.operations.lanes.obeying import until_obeyed
from msgconsole.operations.stores import Stores
from msgconsole.operations.subscribed import get_group, start_of, subscribed_topics
from msgdb.acts import write_act
from msgdb.lanes.records import OffsetRange
from msgdb.lanes.reset_acts import RESET, detail_of
from msgdb.lanes.resets import (
    LanePlace,
    OutsideOfLogError,
    effect_of,
    find_leases,
    find_places,
    lock_places,
    reset_lanes,
)
from msgdb.log.queues import QueueRow, list_topic_queues
from msgdb.log.reads import next_offsets, offset_at_time
from msgdb.postgres.binary_rows import micros_of
from msgdb.postgres.connections import Connection
from msgdb.postgres.history import get_history

COUNT_SECONDS_MAX: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedReset:
    """Which group is to go where: exactly one of the places is given."""

    namespace: str
    group: str
    topic: str | None = None
    """None: on all topics that it subscribes to."""
    to_time: datetime | None = None
    """To the first message stored at that time or later."""
    to_beginning: bool = False
    """To the first message that there is."""
    to_end: bool = False
    """To behind the last message that there is: all of it is skipped."""
    to_offset: int | None = None
    """To that offset, of one queue."""
    queue_id: int | None = None


@dataclass(frozen=True, slots=True)
class QueueReset:
    """What a reset means for one queue."""

    topic: str
    queue_id: int
    from_offset: int
    """Below it all is settled now."""
    to_offset: int
    skipped: int
    """How many messages the group has not settled, and would not be given any more."""
    again: int
    """How many messages it has settled, and would be given again."""
    matching: int
    """How many of both the group would get: what its subscriptions ask for, and what was stored once more for it."""
    copies: int
    """How many of these were stored once more for it, by a redrive or a replay."""
    is_exact: bool
    """Whether those were counted; else it is about so many."""
    waiting_skipped: int
    """How many messages that wait for another attempt would not come any more: they are in `skipped`, too."""
    waiting_anew: int
    """How many messages that wait for another attempt would begin anew."""


@dataclass(frozen=True, slots=True)
class ResetDone:
    """A group that was reset."""

    queues: Sequence[QueueReset]
    waiting_for: Sequence[str]
    """The brokers that may still hand out by the former place; empty: nobody does any more."""


async def plan_reset(stores: Stores, wanted: WantedReset) -> list[QueueReset]:
    """Return what a reset would do, queue by queue. Changes nothing. Raises a NotFoundError, or InvalidSettingError."""
    meant = await _resolve(stores, wanted)
    async with stores.messages.looking(COUNT_SECONDS_MAX) as conn:
        targets = await _targets(conn, wanted, [queue for _, queue in meant.queues])
        places = await find_places(conn, meant.group.group_id, list(targets))
        return [
            await _plan_queue(conn, meant, of_topic, places.get(of_topic[1].queue_id), targets[of_topic[1].queue_id])
            for of_topic in meant.queues
        ]


async def reset_group(
    stores: Stores,
    wanted: WantedReset,
    *,
    actor: str,
    reason: str,
    wait_seconds: float,
    on_waiting: Callable[[Sequence[str]], None],
) -> ResetDone:
    """Put a group somewhere else, and return once nothing is handed out by its former place any more.

    What is in flight is stale from then on: what its instances say of it settles nothing. *on_waiting* is told of the
    brokers that are waited for; after *wait_seconds* they are returned.

    Raises as `plan_reset` does, and FeatureNotEverywhereError while a broker runs that does not understand it.
    """
    await stores.service(actor).check_everywhere(Feature.RESETS)
    planned = await plan_reset(stores, wanted)
    group = (await _resolve(stores, wanted)).group
    targets = {each.queue_id: each.to_offset for each in planned}
    youngest_id = max((subscription.subscription_id for subscription in group.subscriptions), default=0)
    async with stores.messages.transaction() as conn:
        history = await get_history(conn)
        # Of this very moment: what becomes of a message is told by it later.
        places = _places(planned, await lock_places(conn, group.group_id, list(targets)))
        queues = [_as_of(each, places[each.queue_id]) for each in planned]
        detail = {
            **detail_of(group.group_id, youngest_id, targets, places),
            "skipped": sum(each.skipped for each in queues),
            "again": sum(each.again for each in queues),
        }
        try:
            await reset_lanes(conn, group.group_id, targets, youngest_id, history.epoch_floor)
        except OutsideOfLogError as error:
            raise _refused(error) from error
        leases = await find_leases(conn, group.group_id, targets)
        thing = f"group {wanted.group}{'' if wanted.topic is None else f' on {wanted.topic}'}"
        about = {"namespace": wanted.namespace, "thing": thing}
        await write_act(conn, actor=actor, action=RESET, **about, reason=reason, detail=detail)
    waiting = await until_obeyed(stores, group.group_id, leases, wait_seconds, on_waiting)
    return ResetDone(queues, waiting)


class _Meant(NamedTuple):
    """The group, and the queues of the topics that are meant."""

    group: GroupRoute
    queues: list[tuple[TopicRoute, QueueRow]]
    gate: StressGate


async def _resolve(stores: Stores, wanted: WantedReset) -> _Meant:
    _check_one_place(wanted)
    snapshot = await load_snapshot(stores.config)
    group = get_group(snapshot, wanted.namespace, wanted.group)
    topics = subscribed_topics(snapshot, group, wanted.topic)
    async with stores.messages.looking() as conn:
        queues = [(topic, queue) for topic in topics for queue in await list_topic_queues(conn, topic.topic_id)]
    if wanted.queue_id is not None:
        queues = [(topic, queue) for topic, queue in queues if queue.queue_id == wanted.queue_id]
        if not queues:
            raise ThingNotFoundError("queue", f"{wanted.queue_id} of what {wanted.group} subscribes to")
    return _Meant(group, queues, StressGate(snapshot))


def _check_one_place(wanted: WantedReset) -> None:
    places = (wanted.to_time is not None, wanted.to_beginning, wanted.to_end, wanted.to_offset is not None)
    if sum(places) != 1:
        raise InvalidSettingError("place", "must be one of a time, the beginning, the end, or an offset of a queue")
    if (wanted.to_offset is None) != (wanted.queue_id is None):
        raise InvalidSettingError("offset", "is of one queue: both must be given, or neither")


async def _targets(conn: Connection, wanted: WantedReset, queues: Sequence[QueueRow]) -> dict[int, int]:
    """Return where each queue's lane would go."""
    ends = await next_offsets(conn, [queue.queue_id for queue in queues])
    targets: dict[int, int] = {}
    for queue in queues:
        queue_id, end = queue.queue_id, ends[queue.queue_id]
        if wanted.to_beginning:
            targets[queue_id] = queue.start_offset
        elif wanted.to_end:
            targets[queue_id] = end
        elif wanted.to_time is not None:
            # By itself: time goes up in each queue, and no two queues keep step.
            targets[queue_id] = await offset_at_time(conn, queue_id, micros_of(wanted.to_time))
        else:
            assert wanted.to_offset is not None, "one place is given"
            if not queue.start_offset <= wanted.to_offset <= end:
                raise InvalidSettingError("offset", f"of queue {queue_id} must be {queue.start_offset} to {end}")
            targets[queue_id] = wanted.to_offset
    return targets


async def _plan_queue(
    conn: Connection,
    meant: _Meant,
    of_topic: tuple[TopicRoute, QueueRow],
    place: LanePlace | None,
    to_offset: int,
) -> QueueReset:
    group, (topic, queue) = meant.group, of_topic
    if place is None:
        # Nobody was ever served there: it begins where the earliest of its subscriptions does.
        place = LanePlace(max(start_of(group, topic, queue.queue_id), queue.start_offset))
    effect = effect_of(place, to_offset)
    wishes = tuple(
        Wish(asked.event_code, None if asked.expression is None else compile_expression(asked.expression))
        for asked in asked_by(group, topic)
    )
    changed = [(queue.queue_id, first, end) for first, end in (*effect.skipped, *effect.again)]
    selection = Selection(wishes=wishes, copies_for=group.group_id)
    counted = await count_selected(conn, changed, selection, denied_to(group, topic, meant.gate))
    return QueueReset(
        topic=topic.name,
        queue_id=queue.queue_id,
        from_offset=place.acked_offset,
        to_offset=to_offset,
        skipped=_length(effect.skipped) + effect.skipped_waiting,
        again=_length(effect.again),
        # What waits for another attempt was asked for.
        matching=counted.selected - counted.denied + effect.skipped_waiting,
        copies=counted.copies,
        is_exact=counted.is_exact,
        waiting_skipped=effect.skipped_waiting,
        waiting_anew=effect.anew,
    )


def _places(planned: Sequence[QueueReset], found: Mapping[int, LanePlace]) -> dict[int, LanePlace]:
    """Return where each lane is; one that was never served is where it would begin."""
    return {each.queue_id: found.get(each.queue_id) or LanePlace(each.from_offset) for each in planned}


def _as_of(planned: QueueReset, place: LanePlace) -> QueueReset:
    """Return what was *planned* for a queue as it is with its lane at *place*, where that moved since.

    What matches is not counted once more, as the lane is locked: it is about so much then.
    """
    effect = effect_of(place, planned.to_offset)
    skipped, again = _length(effect.skipped) + effect.skipped_waiting, _length(effect.again)
    exact = replace(
        planned,
        from_offset=place.acked_offset,
        skipped=skipped,
        again=again,
        waiting_skipped=effect.skipped_waiting,
        waiting_anew=effect.anew,
    )
    if exact == planned:
        return planned
    most = skipped + again
    return replace(exact, matching=min(planned.matching, most), copies=min(planned.copies, most), is_exact=False)


def _length(ranges: Sequence[OffsetRange]) -> int:
    return sum(end - first for first, end in ranges)


def _refused(error: OutsideOfLogError) -> InvalidSettingError:
    outside = error.outside
    # Days were dropped, or the log lost its end, since it was looked at.
    return InvalidSettingError(
        "offset", f"of queue {outside.queue_id} must be {outside.start_offset} to {outside.next_offset} by now"
    )
