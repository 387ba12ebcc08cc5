"""One message that blocks a group: given up (skipped), or its next attempt made due at once, whoever is connected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from confdb.snapshot import load_snapshot
from msgbroker.contract.errors import MessageStateError
from msgbroker.contract.limits import LANE_WINDOW_MAX
from msgbroker.engine.matching import Matcher
from msgconsole.operations.counting import check_costs
from msgconsole.operations.lanes.meant import MeantMessage, WantedMessage, find_meant
from msgconsole.operations.lanes.obeying import until_obeyed
from msgconsole.operations.matched import Matched
from msgconsole.operations.stores import Stores
from msgdb.acts import write_act
from msgdb.lanes import skip_acts
from msgdb.lanes.reset_acts import list_reset_acts
from msgdb.lanes.resets import find_leases
from msgdb.lanes.steering import (
    StandByRows,
    Standing,
    count_others,
    find_stand,
    hold_lane,
    retry_message_now,
    skip_message,
)
from msgdb.log.copies import find_copy_at
from msgdb.postgres.connections import Connection
from msgdb.postgres.history import get_history

_DEAD_LETTER: Final = "DEAD_LETTER"
_NOT_MATCHED: Final = "NOT_MATCHED"
"""The words of the status, which is told in a room above; of what is settled rows alone do not tell how."""


class Steer(StrEnum):
    """What is done to a message, in the words of its act."""

    SKIP = skip_acts.SKIP
    """It becomes a dead letter, `SKIPPED`: the group is done with it."""
    RETRY_NOW = "message.retry-now"
    """Its next attempt is due at once."""


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


async def plan_steer(stores: Stores, wanted: WantedMessage, steer: Steer) -> SteerPlan:
    """Return what would be steered. Changes nothing.

    Raises a NotFoundError; MessageStateError where the message is settled for the group, or it does not ask for it;
    InvalidSettingError where it is not said which of several rows with that id is meant.
    """
    snapshot = await load_snapshot(stores.config)
    async with stores.messages.looking() as conn:
        found = await find_meant(conn, snapshot, wanted)
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
        found = await find_meant(conn, snapshot, wanted)
        others = await count_others(conn, found.message, LANE_WINDOW_MAX)
    async with stores.messages.transaction() as conn:
        floor = (await get_history(conn)).epoch_floor
        # Asked once more under the lane's lock: whatever it was before, nobody changes it now.
        stand = await hold_lane(conn, found.message, floor)
        copy = found.message.copy
        if await find_copy_at(conn, copy.queue_id, copy.queue_offset) != copy:
            # Its day was dropped meanwhile; or the log lost its end, and another message has the offset.
            raise wanted.not_found()
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
            namespace=wanted.namespace,
            thing=f"message {plan.message_id} of group {plan.group}",
            reason=reason,
            detail={
                **skip_acts.detail_of_place(found.group.group_id, plan.queue_id, plan.queue_offset),
                "standing": plan.standing.value,
                "attempt": plan.attempt,
                "dead_letter_id": steered.dead_letter_id,
            },
        )
    waiting = await until_obeyed(stores, found.group.group_id, leases, wait_seconds, on_waiting)
    return SteerDone(plan, steered.dead_letter_id, steered.is_earlier, waiting)


async def _refuse(
    conn: Connection, found: MeantMessage, stand: StandByRows, steer: Steer, *, is_whatever: bool
) -> None:
    """Raise MessageStateError where nothing of that kind can be done to the message."""
    if await _came_again(conn, found, stand):
        before = f"dead letter {stand.dead_letter_id} is of before the group was reset"
        way_on = f"{before}: its status tells more, a replay delivers it again"
        raise MessageStateError(str(found.message.copy.id), found.group.name, stand.standing, way_on)
    state, way_on = _hindrance(found, stand, steer, is_whatever=is_whatever)
    if state:
        raise MessageStateError(str(found.message.copy.id), found.group.name, state, way_on)


async def _came_again(conn: Connection, found: MeantMessage, stand: StandByRows) -> bool:
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


def _hindrance(found: MeantMessage, stand: StandByRows, steer: Steer, *, is_whatever: bool) -> tuple[str, str]:
    """Return which state keeps the message from being steered, and what there is instead; empty: none does."""
    if stand.standing is Standing.SETTLED:
        if stand.dead_letter_id is not None:
            return _DEAD_LETTER, f"to redrive dead letter {stand.dead_letter_id} delivers it again"
        return Standing.SETTLED, "a replay delivers it again"
    waits_for_paused = stand.standing is Standing.SHELVED
    if stand.standing is Standing.UNSETTLED and not is_whatever:
        # What has a row was asked for when it was read.
        check_costs(found.group, found.topic)
        queue_id, message = found.message.copy.queue_id, Matched.of(found.message.copy)
        matcher = Matcher(found.group, found.topic, stand.reset)
        if not matcher.select([message], queue_id):
            waits_for_paused = bool(matcher.paused_wanting(message, queue_id))
            if not waits_for_paused:
                return _NOT_MATCHED, "its subscriptions do not ask for it now"
    if waits_for_paused and steer is Steer.RETRY_NOW:
        return Standing.SHELVED, "only paused subscriptions want it, until they are resumed"
    return "", ""


def _plan(found: MeantMessage, stand: StandByRows, others: int) -> SteerPlan:
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
