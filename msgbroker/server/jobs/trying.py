"""Trials: what somebody wants a single instance to be handed is read, handed out, and what it said is written down.

One message after the other, beside all else that the instance is at. Only the broker that has the instance takes a
trial, and nobody goes on with it elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import structlog

from confdb.routes import Snapshot, TopicRoute
from msgbroker.contract.errors import MessageCenterError, StoreUnavailableError
from msgbroker.server import clock
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.deliver.lanes.rules import stress_check
from msgbroker.server.deliver.trials import Trial
from msgbroker.server.jobs.receivers import Receivers
from msgbroker.server.log.message import LogMessage
from msgbroker.server.log.stored_rows import messages_of_rows
from msgbroker.server.loops import pause
from msgdb.jobs.specs import Place
from msgdb.jobs.trials import (
    TrialOutcome,
    TrialState,
    Tried,
    WantedTrial,
    end_trial,
    list_wanted,
    note_tried,
    take_trial,
)
from msgdb.log.reads import read_offsets
from msgdb.store import MessageStore

log = structlog.get_logger(__name__)

_BYTES_MAX: Final = 64 * 1024 * 1024
_NOTHING_THERE: Final = "it is not in the log any more"
_NO_ROOM: Final = "the instance holds as many messages as it may, or wants nothing more"
_GONE: Final = "the instance went away"
_NOT_WAITED_FOR: Final = "nobody waited for it any more"
_NOT_SERVED: Final = "this broker serves nothing of its topic to the group"
_PULLS: Final = "the instance pulls its messages: only those that subscribe by a stream can be handed any"


class _EndedError(Exception):
    """Somebody has ended the trial, or nobody waits for it any more."""


@dataclass(frozen=True, slots=True)
class TrialRunnerConfig:
    """How often it is looked, and how long an instance is waited for."""

    look_seconds: float = 0.5
    """How often the store is asked for trials, while an instance is connected here."""
    room_seconds: float = 10.0
    """How long it is waited until an instance has room for a message."""
    beat_seconds: float = 1.0
    """How often it is said that a trial goes on."""
    step_seconds: float = 0.05
    """How often it is looked whether an instance's time is over."""
    at_a_time: int = 4
    """So many trials go on at once."""


class TrialRunner:
    """Carries out trials of instances that are connected here.

    A trial has no lease that others wait for. So *check_current* is asked before it is handed out, and while it may be
    waiting to be written; it raises where a change of the whitelist may be active that is not known here.
    """

    def __init__(
        self,
        *,
        store: MessageStore,
        owner: UUID,
        hub: DeliveryHub,
        snapshot: Callable[[], Snapshot],
        check_current: Callable[[], None],
        config: TrialRunnerConfig | None = None,
    ) -> None:
        self._store = store
        self._owner = owner
        self._hub = hub
        self._snapshot = snapshot
        self._check_current = check_current
        self._receivers = Receivers(snapshot)
        self._config = config or TrialRunnerConfig()
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Look for trials until *stop* is set."""
        try:
            while not stop.is_set():
                try:
                    await self.begin_once()
                except StoreUnavailableError:
                    log.warning("trials.store_unavailable")
                await pause(stop, self._config.look_seconds)
        finally:
            for task in self._under_way:
                task.cancel()
            # They are no news to a later run: to ask them how they ended would cancel that one, too.
            self._under_way.clear()

    async def begin_once(self) -> int:
        """Begin the trials of instances that are here; return how many. Raises what ended one that nobody foresaw."""
        for task in [task for task in self._under_way if task.done()]:
            self._under_way.discard(task)
            task.result()
        if not any(group.instances for group in self._hub.groups.values()):
            return 0
        async with self._store.connection() as conn:
            wanted = await list_wanted(conn)
        here = [(trial, found) for trial in wanted if (found := self._find(trial)) is not None]
        begun = 0
        for trial, (group, instance) in here[: self._config.at_a_time - len(self._under_way)]:
            async with self._store.transaction() as conn:
                is_mine = await take_trial(conn, trial.trial_id, self._owner)
            if is_mine:
                self._under_way.add(asyncio.ensure_future(self._carry_out(trial, group, instance)))
                begun += 1
        return begun

    def _find(self, trial: WantedTrial) -> tuple[GroupDelivery, Instance] | None:
        group = self._hub.groups.get(trial.group_id)
        if group is None:
            return None
        found = (each for each in group.instances.values() if each.instance_id == trial.instance_id)
        instance = next(found, None)
        return None if instance is None else (group, instance)

    async def _carry_out(self, trial: WantedTrial, group: GroupDelivery, instance: Instance) -> None:
        """Try all messages of a trial. Whatever keeps it from its end is written down, and ends nothing else."""
        try:
            error = await self._try_all(trial, group, instance)
            state = TrialState.DONE if error is None else TrialState.FAILED
        except _EndedError:
            # Where somebody has ended it, it is in another state already, and stays so.
            state, error = TrialState.CANCELLED, _NOT_WAITED_FOR
        except MessageCenterError as failed:
            state, error = TrialState.FAILED, failed.message
        try:
            async with self._store.transaction() as conn:
                await end_trial(conn, trial.trial_id, state, error, if_in=[TrialState.TRYING])
        except StoreUnavailableError:
            # Whoever waits for it hears nothing more, and ends it.
            log.warning("trials.store_unavailable", trial_id=trial.trial_id)
        log.info("trials.trial_ended", trial_id=trial.trial_id, state=state, error=error)

    async def _try_all(self, trial: WantedTrial, group: GroupDelivery, instance: Instance) -> str | None:
        """Try one message after the other; return why not all of them were, if so."""
        if instance.pulls:
            return _PULLS
        goes_on = True
        for place in trial.places:
            if not goes_on:
                raise _EndedError
            if instance.is_closed:
                return _GONE
            goes_on = await self._note(trial, [await self._try(trial, group, instance, place)])
        return None

    async def _try(self, trial: WantedTrial, group: GroupDelivery, instance: Instance, place: Place) -> Tried:
        """Hand one message to the instance, and return what became of it."""
        found = await self._read(group, place)
        if isinstance(found, str):
            return Tried(TrialOutcome.NOT_HANDED_OUT, 0.0, found)
        message, topic = found
        if not await self._has_room(trial, instance):
            return Tried(TrialOutcome.NOT_HANDED_OUT, 0.0, _GONE if instance.is_closed else _NO_ROOM)
        # In one go: what is permitted is what is so as it is handed out.
        if not group.serves(topic.topic_id):
            return Tried(TrialOutcome.NOT_HANDED_OUT, 0.0, _NOT_SERVED)
        self._check_current()
        may_hand_out = stress_check(group.route, topic, self._snapshot())
        began_at = clock.now()
        under_way = group.trials.begin(
            instance, message, began_at, route=group.route, topic=topic, may_hand_out=may_hand_out
        )
        try:
            await self._until_ended(trial, group, under_way)
        finally:
            group.trials.end(under_way)
        outcome, error = under_way.ended.result()
        return Tried(outcome, round(clock.now() - began_at, 3), error)

    async def _until_ended(self, trial: WantedTrial, group: GroupDelivery, under_way: Trial) -> None:
        beat_at = clock.now()
        while not under_way.ended.done():
            await asyncio.wait([under_way.ended], timeout=self._config.step_seconds)
            if not under_way.ended.done():
                self._check_current()
            now = clock.now()
            group.trials.look(under_way, now)
            if now - beat_at >= self._config.beat_seconds:
                beat_at = now
                await self._beat(trial)

    async def _read(self, group: GroupDelivery, place: Place) -> tuple[LogMessage, TopicRoute] | str:
        """Return a message as a replay to the group has it, and its topic; or why it cannot be handed out."""
        async with self._store.connection() as conn:
            rows = (await read_offsets(conn, place.queue_id, [place[1:]], _BYTES_MAX)).rows
        route = group.route
        if not rows or rows[0].namespace != route.namespace:
            return _NOTHING_THERE
        topic = self._receivers.route(route.group_id, route.name, route.namespace, rows[0].topic)
        if isinstance(topic, MessageCenterError):
            return topic.message
        if not group.serves(topic.topic_id):
            return _NOT_SERVED
        (message,) = messages_of_rows([rows[0]._replace(target_group=route.group_id, redrives=0)])
        return message, topic

    async def _has_room(self, trial: WantedTrial, instance: Instance) -> bool:
        """Wait until the instance has room for a message; return whether it has."""
        until = clock.now() + self._config.room_seconds
        beat_at = clock.now()
        while instance.room.messages < 1:
            now = clock.now()
            if instance.is_closed or now >= until:
                return False
            if now - beat_at >= self._config.beat_seconds:
                beat_at = now
                await self._beat(trial)
            await asyncio.sleep(self._config.step_seconds)
        return True

    async def _beat(self, trial: WantedTrial) -> None:
        """Write down that it goes on. Raises _EndedError where the trial has ended, or is to end."""
        if not await self._note(trial, []):
            raise _EndedError

    async def _note(self, trial: WantedTrial, tried: Sequence[Tried]) -> bool:
        """Write down what became of messages; False: the trial has ended, or is to end. What was said stays."""
        async with self._store.transaction() as conn:
            return await note_tried(conn, trial.trial_id, self._owner, tried)
