"""Trying messages of the log on one instance of a group: whether a fix works, before its group is given them again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from confdb.snapshot import load_snapshot
from msgbroker.client.connect.inspection import WhichInstances
from msgbroker.contract.errors import InvalidSettingError, ThingNotFoundError
from msgconsole.operations.brokers.asking import Unanswered
from msgconsole.operations.brokers.connected import list_instances
from msgconsole.operations.stores import Stores
from msgconsole.operations.subscribed import get_group, get_subscribed_topic
from msgdb.jobs.specs import Place
from msgdb.jobs.trials import TrialState, TrialStatus, Tried, begin_trial, end_trial, get_trial, wait_for_trial
from msgdb.log.copies import find_copies
from msgdb.log.found import FoundMessage
from msgdb.postgres.connections import Connection

MESSAGES_MAX: Final = 100
"""So many messages are tried at once: somebody looks at each."""
_POLL_SECONDS: Final = 0.2
_WAITING_SECONDS: Final = 1.0
"""How often it is said that somebody waits."""
_TAKEN_SECONDS: Final = 10.0
"""How long a broker may take to take a trial; they look twice a second."""
_SILENT_SECONDS: Final = 15.0
"""A broker that is at a trial says so every second."""
_NOBODY: Final = "no broker that knows of trials has an instance of that id in this group"
_LOST: Final = "nothing was heard of the broker that had the instance"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTry:
    """Which messages an instance is to be handed."""

    namespace: str
    group: str
    instance_id: str
    message_ids: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class TryPlan:
    """What a trial would be."""

    messages: int
    """How many messages would be tried."""
    is_connected: bool
    """Whether a broker says that it has the instance; where none does, those that have not answered may."""
    unanswered: Sequence[Unanswered]


@dataclass(frozen=True, slots=True)
class TriedMessage:
    """What an instance made of a message."""

    message_id: str
    outcome: str
    seconds: float
    error: str


@dataclass(frozen=True, slots=True)
class TryDone:
    """A trial that has ended."""

    trial_id: int
    state: TrialState
    messages: Sequence[TriedMessage]
    """Those that it came to."""
    untried: int
    """How many it did not come to."""
    error: str | None
    """Why it ended before its end."""


async def plan_try(stores: Stores, wanted: WantedTry) -> TryPlan:
    """Return what would be tried. Changes nothing. Raises a NotFoundError, or InvalidSettingError.

    Where all brokers have answered, and none has the instance, it is refused: nobody would take the trial.
    """
    _, copies = await _resolve(stores, wanted)
    return await _plan(stores, wanted, len(copies))


async def try_messages(
    stores: Stores, wanted: WantedTry, *, actor: str, reason: str, on_tried: Callable[[TriedMessage], None]
) -> TryDone:
    """Have an instance try messages, and return what it made of each; ended by hand, the trial ends with it.

    Nothing is stored once more, no cursor moves, and no other instance notices. *on_tried* is told of each message.
    Raises as `plan_try` does.
    """
    group_id, copies = await _resolve(stores, wanted)
    await _plan(stores, wanted, len(copies))
    places = [Place(copy.queue_id, copy.queue_offset, copy.stored_at_us) for copy in copies]
    ids = [str(copy.id) for copy in copies]
    async with stores.messages.transaction() as conn:
        trial_id = await begin_trial(
            conn,
            group_id,
            wanted.instance_id,
            places,
            namespace=wanted.namespace,
            actor=actor,
            reason=reason,
            thing=f"instance {wanted.instance_id} of group {wanted.group}",
            detail={"message_ids": ids},
        )
    try:
        status = await _follow(stores, wanted.namespace, trial_id, ids, on_tried)
    finally:
        # Where this is ended by hand: the instance shall not go on with what nobody waits for.
        async with stores.messages.transaction() as conn:
            await end_trial(conn, trial_id, TrialState.CANCELLED)
    messages = [_told(ids[number], tried) for number, tried in enumerate(status.tried)]
    return TryDone(trial_id, status.state, messages, len(ids) - len(messages), status.error)


async def _resolve(stores: Stores, wanted: WantedTry) -> tuple[int, list[FoundMessage]]:
    if not 1 <= len(wanted.message_ids) <= MESSAGES_MAX:
        raise InvalidSettingError("ids", f"must be 1 to {MESSAGES_MAX}")
    snapshot = await load_snapshot(stores.config)
    group = get_group(snapshot, wanted.namespace, wanted.group)
    async with stores.messages.looking() as conn:
        copies = [await _get_copy(conn, wanted, group.group_id, message_id) for message_id in wanted.message_ids]
    for copy in copies:
        get_subscribed_topic(snapshot, group, copy.topic)
    return group.group_id, copies


async def _plan(stores: Stores, wanted: WantedTry, count: int) -> TryPlan:
    which = WhichInstances(wanted.namespace, wanted.group, wanted.instance_id)
    report = await list_instances(stores, which, 1)
    if not report.instances and not report.unanswered:
        within = f"group {wanted.group} of "
        raise ThingNotFoundError("connected instance", wanted.instance_id, namespace=wanted.namespace, within=within)
    return TryPlan(count, bool(report.instances), report.unanswered)


async def _get_copy(conn: Connection, wanted: WantedTry, group_id: int, message_id: UUID) -> FoundMessage:
    # What was edited for another group is not what this one gets.
    found, _ = await find_copies(conn, message_id, wanted.namespace, group_id=group_id)
    if not found:
        raise ThingNotFoundError("message", str(message_id), namespace=wanted.namespace)
    # As it was stored last: perhaps it was redriven with another body.
    return max(found, key=lambda each: each.position)


async def _follow(
    stores: Stores, namespace: str, trial_id: int, ids: Sequence[str], on_tried: Callable[[TriedMessage], None]
) -> TrialStatus:
    """Return how the trial has ended; end it where nothing happens any more."""
    told, said_at = 0, time.monotonic()
    while True:
        if time.monotonic() - said_at >= _WAITING_SECONDS:
            said_at = time.monotonic()
            async with stores.messages.transaction() as conn:
                await wait_for_trial(conn, trial_id)
        async with stores.messages.looking() as conn:
            status = await get_trial(conn, trial_id, namespace=namespace)
        for number, tried in enumerate(status.tried[told:], told):
            on_tried(_told(ids[number], tried))
        told = len(status.tried)
        if status.state is TrialState.WANTED and status.silent_seconds > _TAKEN_SECONDS:
            await _give_up(stores, trial_id, TrialState.WANTED, _NOBODY)
        elif status.state is TrialState.TRYING and status.silent_seconds > _SILENT_SECONDS:
            await _give_up(stores, trial_id, TrialState.TRYING, _LOST)
        elif status.state not in {TrialState.WANTED, TrialState.TRYING}:
            return status
        else:
            await asyncio.sleep(_POLL_SECONDS)


async def _give_up(stores: Stores, trial_id: int, state: TrialState, error: str) -> None:
    async with stores.messages.transaction() as conn:
        await end_trial(conn, trial_id, TrialState.FAILED, error, if_in=[state])


def _told(message_id: str, tried: Tried) -> TriedMessage:
    return TriedMessage(message_id, tried.outcome.value, tried.seconds, tried.error)
