"""One message that blocks a group: given up (skipped), or its next attempt made due at once, whoever is connected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from confdb.routes import GroupRoute, Snapshot, TopicRoute
from confdb.snapshot import load_snapshot
from msgbroker.contract.errors import InvalidSettingError, MessageStateError, ThingNotFoundError
from msgbroker.contract.limits import LANE_WINDOW_MAX
from msgbroker.engine.matching import Matcher
from msgconsole.operations.counting import asked_by
from msgconsole.operations.lanes.obeying import get_history, until_obeyed
from msgconsole.operations.stores import Stores
from msgconsole.operations.subscribed import get_group, start_of, subscribed_topics
from msgdb.acts import write_act
from msgdb.lanes.reset_acts import list_reset_acts
from msgdb.lanes.resets import find_leases
from msgdb.lanes.steering import (
    Stand,
    Standing,
    SteeredMessage,
    count_others,
    find_stand,
    hold_lane,
    retry_message_now,
    skip_message,
)
from msgdb.log.copies import COPIES_MAX, find_copies, find_copy_at
from msgdb.log.found import FoundMessage
from msgdb.log.queues import list_topic_queues
from msgdb.postgres.connections import Connection


class Steer(StrEnum):
    """What is done to a message, in the words of its act."""

    SKIP = "message.skip"
    """It becomes a dead letter, `SKIPPED`: the group is done with it."""
    RETRY_NOW = "message.retry-now"
    """Its next attempt is due at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedMessage:
    """Which message of which group is meant: by its id, or by its place."""

    namespace: str
    group: str
    message_id: UUID | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    whatever_it_asks_for: bool = False
    """Also one that the group's subscriptions do not ask for (any more): an instance may be at it all the same."""


@dataclass(frozen=True, slots=True)
class SteerPlan:
    """A message that may be steered, and where it stands."""

    message_id: str
    group: str
    topic: str
    event_code: str
    queue_id: int
    queue_offset: int
    standing: Standing
    attempt: int
    """The attempt that comes next, or is under way."""
    due_in_seconds: float | None
    """When it comes, where it waits for one."""
    last_error: str | None
    others: int
    """How many other messages of the queue may be with instances, and would come again: so many at most."""


@dataclass(frozen=True, slots=True)
class SteerDone:
    """A message that was steered."""

    plan: SteerPlan
    dead_letter_id: int | None
    """What was skipped is kept there."""
    is_earlier_letter: bool
    """Whether it was that dead letter before the group was put back behind it: what that says is of then."""
    waiting_for: Sequence[str]
    """The brokers that may not know of it yet; empty: it holds."""


class _Found(NamedTuple):
    """A message, with the configuration that it is looked at by."""

    message: SteeredMessage
    topic: TopicRoute
    group: GroupRoute


class _Matched(NamedTuple):
    """A message, as far as matching looks at it."""

    queue_offset: int
    stored_at_us: int
    event_code: str
    headers: Mapping[str, str]
    ordering_key: str
    stress: bool
    target_group: int | None
    size_bytes: int

    @property
    def held_bytes(self) -> int:
        """What it would cost in memory: nobody holds it."""
        return self.size_bytes

    @classmethod
    def of(cls, message: FoundMessage) -> _Matched:
        """Return it of a message that was found."""
        return cls(
            queue_offset=message.queue_offset,
            stored_at_us=message.stored_at_us,
            event_code=message.event_code,
            headers=message.headers or {},
            ordering_key=message.ordering_key or "",
            stress=message.stress,
            target_group=message.target_group,
            size_bytes=message.body_bytes,
        )


async def plan_steer(stores: Stores, wanted: WantedMessage, steer: Steer) -> SteerPlan:
    """Return what would be steered. Changes nothing.

    Raises a NotFoundError; MessageStateError where the message is settled for the group, or it does not ask for it;
    InvalidSettingError where it is not said which of several rows with that id is meant.
    """
    snapshot = await load_snapshot(stores.config)
    async with stores.messages.looking() as conn:
        found = await _find(conn, snapshot, wanted)
        stand = await find_stand(conn, found.message)
        await _refuse(conn, found, stand, steer, is_whatever=wanted.whatever_it_asks_for)
        return _plan(found, stand, await count_others(conn, found.message, LANE_WINDOW_MAX))


async def steer_message(
    stores: Stores,
    wanted: WantedMessage,
    steer: Steer,
    *,
    actor: str,
    reason: str,
    wait_seconds: float,
    on_waiting: Callable[[Sequence[str]], None],
) -> SteerDone:
    """Skip a message, or let its next attempt be due, and return once whoever serves the lane goes by it.

    What instances have of that queue is stale from then on, and comes again. *on_waiting* is told of the brokers that
    are waited for; after *wait_seconds* they are returned. Raises as `plan_steer` does.
    """
    snapshot = await load_snapshot(stores.config)
    async with stores.messages.looking() as conn:
        found = await _find(conn, snapshot, wanted)
        others = await count_others(conn, found.message, LANE_WINDOW_MAX)
    async with stores.messages.transaction() as conn:
        floor = (await get_history(conn)).epoch_floor
        # Asked once more under the lane's lock: whatever it was before, nobody changes it now.
        stand = await hold_lane(conn, found.message, floor)
        copy = found.message.copy
        if await find_copy_at(conn, copy.queue_id, copy.queue_offset) != copy:
            # Its day was dropped meanwhile; or the log lost its end, and another message has the offset.
            raise ThingNotFoundError("message", _name_of(wanted), namespace=wanted.namespace)
        await _refuse(conn, found, stand, steer, is_whatever=wanted.whatever_it_asks_for)
        if steer is Steer.SKIP:
            steered = await skip_message(conn, found.message, stand, floor)
        else:
            steered = await retry_message_now(conn, found.message, floor)
        leases = await find_leases(conn, found.group.group_id, [copy.queue_id])
        plan = _plan(found, stand, others)
        await write_act(
            conn,
            actor=actor,
            action=steer.value,
            thing=f"message {plan.message_id} of group {plan.group}",
            reason=reason,
            # By these, what became of it is told later.
            detail={
                "group_id": found.group.group_id,
                "queue_id": plan.queue_id,
                "queue_offset": plan.queue_offset,
                "standing": plan.standing.value,
                "attempt": plan.attempt,
                "dead_letter_id": steered.dead_letter_id,
            },
        )
    waiting = await until_obeyed(stores, found.group.group_id, leases, wait_seconds, on_waiting)
    return SteerDone(plan, steered.dead_letter_id, steered.is_earlier, waiting)


async def _find(conn: Connection, snapshot: Snapshot, wanted: WantedMessage) -> _Found:
    """Return the row that is meant: of several with the id, the one that the group has not settled."""
    group = get_group(snapshot, wanted.namespace, wanted.group)
    steered = [await _steered(conn, snapshot, group, copy) for copy in await _copies(conn, wanted, group)]
    found = [each for each in steered if each is not None]
    if not found:
        raise ThingNotFoundError("message", _name_of(wanted), namespace=wanted.namespace)
    if len(found) == 1:
        return found[0]
    open_ones = [each for each in found if (await find_stand(conn, each.message)).standing is not Standing.SETTLED]
    if len(open_ones) > 1:
        places = ", ".join(f"{each.message.copy.queue_id} {each.message.copy.queue_offset}" for each in open_ones)
        raise InvalidSettingError(
            "id", f"is of several messages that {group.name} has: say which queue, offset: {places}"
        )
    return open_ones[0] if open_ones else found[0]


async def _copies(conn: Connection, wanted: WantedMessage, group: GroupRoute) -> list[FoundMessage]:
    """Return the rows that may be meant, of the namespace and the group, the newest first."""
    if wanted.message_id is not None and wanted.queue_id is None and wanted.queue_offset is None:
        found, is_cut = await find_copies(conn, wanted.message_id, wanted.namespace, group_id=group.group_id)
        if is_cut:
            # Which of them is not settled would only be known of some.
            said = f"is of more than {COPIES_MAX} that {group.name} has: say which, by its queue and offset"
            raise InvalidSettingError("id", said)
        return sorted(found, key=lambda each: each.position, reverse=True)
    if wanted.message_id is not None or wanted.queue_id is None or wanted.queue_offset is None:
        raise InvalidSettingError("message", "must be given by its id, or by its queue and offset, and not by both")
    copy = await find_copy_at(conn, wanted.queue_id, wanted.queue_offset)
    if copy is None or copy.namespace != wanted.namespace or copy.target_group not in {None, group.group_id}:
        return []
    return [copy]


def _name_of(wanted: WantedMessage) -> str:
    if wanted.message_id is not None:
        return str(wanted.message_id)
    return f"at offset {wanted.queue_offset} of queue {wanted.queue_id}"


async def _steered(conn: Connection, snapshot: Snapshot, group: GroupRoute, copy: FoundMessage) -> _Found | None:
    """Return what it takes to steer a copy; None: it is of a topic that was deleted, and another one has its name."""
    (topic,) = subscribed_topics(snapshot, group, copy.topic)
    if copy.queue_id not in {queue.queue_id for queue in await list_topic_queues(conn, topic.topic_id)}:
        return None
    message = SteeredMessage(group.group_id, group.name, copy, start_of(group, topic, copy.queue_id))
    return _Found(message, topic, group)


async def _refuse(conn: Connection, found: _Found, stand: Stand, steer: Steer, *, is_whatever: bool) -> None:
    """Raise MessageStateError where nothing of that kind can be done to the message."""
    if await _came_again(conn, found, stand):
        before = f"dead letter {stand.dead_letter_id} is of before the group was reset"
        way_on = f"{before}, `msgcenter message status` tells more, `msgcenter message replay` delivers it again"
        raise MessageStateError(str(found.message.copy.id), found.group.name, stand.standing, way_on)
    state, way_on = _hindrance(found, stand, steer, is_whatever=is_whatever)
    if state:
        raise MessageStateError(str(found.message.copy.id), found.group.name, state, way_on)


async def _came_again(conn: Connection, found: _Found, stand: Stand) -> bool:
    """Return whether the message was settled once more since its dead letter, as the group was put back behind it."""
    if stand.standing is not Standing.SETTLED or stand.died_at is None:
        return False
    copy = found.message.copy
    resets = await list_reset_acts(conn, copy.queue_id, copy.queue_offset, stand.died_at)
    return any(
        act.goes_back and act.to_offset <= copy.queue_offset
        for act in resets.acts
        if act.group_id == found.group.group_id
    )


def _hindrance(found: _Found, stand: Stand, steer: Steer, *, is_whatever: bool) -> tuple[str, str]:
    """Return which state keeps the message from being steered, and what there is instead; empty: none does."""
    if stand.standing is Standing.SETTLED:
        if stand.dead_letter_id is not None:
            return "a dead letter", f"`msgcenter dead-letters redrive {stand.dead_letter_id}` delivers it again"
        return Standing.SETTLED, "`msgcenter message replay` delivers it again"
    waits_for_paused = stand.standing is Standing.SHELVED
    if stand.standing is Standing.UNSETTLED and not is_whatever:
        # What has a row was asked for when it was read.
        asked_by(found.group, found.topic)
        queue_id, message = found.message.copy.queue_id, _Matched.of(found.message.copy)
        matcher = Matcher(found.group, found.topic, stand.reset)
        if not matcher.select([message], queue_id):
            waits_for_paused = bool(matcher.paused_wanting(message, queue_id))
            if not waits_for_paused:
                return "NOT_ASKED_FOR", "its subscriptions do not ask for it now"
    if waits_for_paused and steer is Steer.RETRY_NOW:
        return Standing.SHELVED, "only paused subscriptions want it: `msgcenter subscription update ... --resume`"
    return "", ""


def _plan(found: _Found, stand: Stand, others: int) -> SteerPlan:
    copy = found.message.copy
    return SteerPlan(
        message_id=str(copy.id),
        group=found.group.name,
        topic=copy.topic,
        event_code=copy.event_code,
        queue_id=copy.queue_id,
        queue_offset=copy.queue_offset,
        standing=stand.standing,
        attempt=stand.attempt,
        due_in_seconds=stand.due_in_seconds if stand.standing is Standing.WAITING else None,
        last_error=stand.last_error,
        others=others,
    )
