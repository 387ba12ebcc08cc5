"""Waiting until a group is empty: all that was stored as the wait began is settled. It looks, and changes nothing."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from confdb.routes import GroupRoute, Snapshot, TopicRoute
from confdb.snapshot import load_snapshot
from msgbroker.contract.errors import GroupNotFoundError, OtherHistoryError
from msgbroker.contract.limits import REDELIVERIES_PER_LANE_MAX
from msgconsole.operations.stores import Stores
from msgconsole.operations.subscribed import get_group, start_of, subscribed_topics
from msgdb.lanes.draining import LaneEnd, LaneLeft, find_left
from msgdb.log.queues import list_topic_queues
from msgdb.log.reads import next_offsets
from msgdb.postgres.history import History, find_history

_POLL_SECONDS: Final = 0.5
_REST: Final = 10.0
"""A look that takes long is followed by so many times as long without one."""


@dataclass(frozen=True, slots=True)
class QueueLeft:
    """What a group has still to settle of one queue."""

    topic: str
    queue_id: int
    end_offset: int
    """Below it all is to be settled."""
    behind: int
    """Not settled and without a redelivery: not read yet, or with an instance."""
    redeliveries: int
    shelved: int
    """How many messages wait for paused subscriptions."""
    next_due_in_seconds: float | None
    last_due_in_seconds: float | None
    is_served: bool
    """Whether a broker serves the group's lane."""

    @property
    def unsettled(self) -> int:
        """How many messages are left."""
        return self.behind + self.redeliveries + self.shelved


@dataclass(frozen=True, slots=True)
class Drain:
    """How far a group is from being empty."""

    group: str
    queues: Sequence[QueueLeft]
    waits_for: Sequence[str]
    """What keeps it, in sentences; empty: nothing but its instances' work."""

    @property
    def unsettled(self) -> int:
        """How many messages are left."""
        return sum(each.unsettled for each in self.queues)

    @property
    def is_empty(self) -> bool:
        """Whether all is settled."""
        return not self.unsettled


@dataclass(frozen=True, slots=True)
class _Ends:
    """Up to where each queue of a group is to be settled: fixed as the wait begins."""

    group: GroupRoute
    topics: dict[int, TopicRoute]
    """By the queue."""
    lanes: Sequence[LaneEnd]
    history: History | None
    """The one that they are of: another one may have given those offsets to other messages."""


async def drain_group(
    stores: Stores,
    namespace: str,
    group: str,
    topic: str | None = None,
    *,
    timeout_seconds: float | None = None,
    on_progress: Callable[[Drain], None],
) -> Drain:
    """Return once all is settled that was stored at the moment of the call, or after a while how far it is.

    *on_progress* is told after each look. Raises a NotFoundError for what is not registered (any more), and
    OtherHistoryError where the store goes on with another history meanwhile.
    """
    loop = asyncio.get_running_loop()
    deadline = math.inf if timeout_seconds is None else loop.time() + timeout_seconds
    ends = await _find_ends(stores, namespace, group, topic)
    while True:
        asked_at = loop.time()
        drain = await _look(stores, ends)
        looked_at = loop.time()
        if drain.is_empty or looked_at >= deadline:
            return drain
        on_progress(drain)
        pause_seconds = max(_POLL_SECONDS, _REST * (looked_at - asked_at))
        await asyncio.sleep(min(pause_seconds, deadline - looked_at))


async def _find_ends(stores: Stores, namespace: str, name: str, topic: str | None) -> _Ends:
    snapshot = await load_snapshot(stores.config)
    group = get_group(snapshot, namespace, name)
    async with stores.messages.looking() as conn:
        topics = {
            queue.queue_id: each
            for each in subscribed_topics(snapshot, group, topic)
            for queue in await list_topic_queues(conn, each.topic_id)
        }
        ends = await next_offsets(conn, list(topics))
        history = await find_history(conn)
    lanes = [LaneEnd(queue_id, end, start_of(group, topics[queue_id], queue_id)) for queue_id, end in ends.items()]
    return _Ends(group, topics, lanes, history)


async def _look(stores: Stores, ends: _Ends) -> Drain:
    # Each time: it may be paused, changed or deleted meanwhile.
    snapshot = await load_snapshot(stores.config)
    group = _still_there(snapshot, ends.group)
    async with stores.messages.looking() as conn:
        history = await find_history(conn)
        left = await find_left(conn, group.group_id, ends.lanes)
    if history is not None and ends.history is not None and history.history_id != ends.history.history_id:
        raise OtherHistoryError(str(history.history_id), str(ends.history.history_id))
    end_offsets = {lane.queue_id: lane.end_offset for lane in ends.lanes}
    queues = [_queue_left(ends.topics[lane.queue_id].name, end_offsets[lane.queue_id], lane) for lane in left]
    return Drain(group.name, queues, reasons_of(group, queues))


def _still_there(snapshot: Snapshot, group: GroupRoute) -> GroupRoute:
    found = snapshot.groups.get((group.namespace, group.name))
    if found is None or found.group_id != group.group_id:
        raise GroupNotFoundError(group.namespace, group.name)
    return found


def _queue_left(topic: str, end_offset: int, lane: LaneLeft) -> QueueLeft:
    return QueueLeft(
        topic,
        lane.queue_id,
        end_offset,
        lane.behind,
        lane.redeliveries,
        lane.shelved,
        lane.next_due_in_seconds,
        lane.last_due_in_seconds,
        lane.is_served,
    )


def reasons_of(group: GroupRoute, queues: Sequence[QueueLeft]) -> list[str]:
    """Return what keeps a group from being empty, in sentences. Pure."""
    left = [each for each in queues if each.unsettled]
    reasons: list[str] = []
    if left and group.paused:
        reasons.append("the group is paused until it is resumed")
    if shelved := sum(each.shelved for each in left):
        names = sorted({subscription.event_code for subscription in group.subscriptions if subscription.paused})
        reasons.append(f"{_messages(shelved)} for paused subscriptions ({', '.join(names) or 'none by now'})")
    unserved = sum(not each.is_served for each in left)
    if unserved:
        which = "these queues" if unserved == len(left) else f"{unserved} of these {len(left)} queues"
        reasons.append(f"no broker serves {which}: is an instance of the group connected?")
    full = [each for each in left if each.redeliveries + each.shelved >= REDELIVERIES_PER_LANE_MAX]
    if full:
        reasons.append(f"{len(full)} of these queues are read no further: as many messages wait there as may")
    retried = [each for each in left if each.redeliveries]
    if retried:
        count = sum(each.redeliveries for each in retried)
        first = min((each.next_due_in_seconds or 0.0) for each in retried)
        last = max((each.last_due_in_seconds or 0.0) for each in retried)
        when = f"the next is due in {_seconds(first)}, the last in {_seconds(last)}"
        reasons.append(f"{_messages(count)} for another attempt: {when}")
    return reasons


def _messages(count: int) -> str:
    return f"{count:,} message{'s wait' if count != 1 else ' waits'}"


def _seconds(seconds: float) -> str:
    return f"{max(0, math.ceil(seconds)):,} s"
