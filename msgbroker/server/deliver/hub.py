"""The delivery hub: all groups that have instances on this broker, and the turns they get.

What happens (messages committed, credit, verdicts, a read's end) only marks groups; one callback per turn of the event
loop pumps those that are marked, each within a common budget, so that no group's load starves another's and publishing
is never waiting for delivery.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from confdb.routes import GroupRoute, Snapshot, TopicRoute
from confdb.unserved import name_group
from msgbroker.contract.errors import GroupNotFoundError, UnavailableError
from msgbroker.engine.lane.lane import Lane
from msgbroker.engine.matching import Matcher
from msgbroker.server import clock
from msgbroker.server.alarms.board import AlarmBoard
from msgbroker.server.alarms.names import lane_alarm
from msgbroker.server.alarms.not_understood import refusal
from msgbroker.server.alarms.set_aside import SetAside
from msgbroker.server.deliver.counters import HubCounters
from msgbroker.server.deliver.expressions.evaluations import Evaluations
from msgbroker.server.deliver.expressions.turns import EvaluationTurns
from msgbroker.server.deliver.group import BATCH_MESSAGES_MAX, GroupDelivery
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.deliver.instances.recent_crashes import RecentCrashes
from msgbroker.server.deliver.lane_rules import lane_config, stress_check
from msgbroker.server.deliver.lane_work import LaneWork, Work
from msgbroker.server.deliver.lanes_to_recheck import Suspects
from msgbroker.server.deliver.outgoing import Outgoing, OutgoingConfig
from msgbroker.server.deliver.owned_lane import LaneSlot
from msgbroker.server.deliver.pump_budget import PumpBudget
from msgbroker.server.deliver.reader import ReadyBytes
from msgbroker.server.log.cache import LogCache
from msgbroker.server.log.message import LogMessage
from msgbroker.server.loops import pause, pause_or_wake
from msgdb.append.outcome import FrameOutcome
from msgdb.lanes.records import ClaimedLane, LaneKey, RedeliveryRow
from msgdb.reports.alarms import Alarm, AlarmKind

log = structlog.get_logger(__name__)

_NO_TOPICS: Final[frozenset[int]] = frozenset()


@dataclass(frozen=True, slots=True)
class DeliveryConfig:
    """Bounds of delivery."""

    turn_messages_max: int = 4_000
    """Handed out in one turn of the event loop, over all groups."""
    instance_outbox_bytes_max: int = 1024 * 1024
    ready_bytes_max: int = 64 * 1024 * 1024
    """Read for instances that have not taken it yet, over all lanes."""
    tick_seconds: float = 0.1
    """How late a retry or a timeout may be noticed."""
    watch_seconds: float = 5.0
    """How late the watch may notice that it is to stop; it hears of failures at once."""


class DeliveryHub:
    """See the module."""

    def __init__(
        self,
        cache: LogCache,
        board: AlarmBoard,
        config: DeliveryConfig | None = None,
        outgoing: OutgoingConfig | None = None,
    ) -> None:
        self.cache = cache
        self.aside: SetAside[LaneWork] = SetAside(board, self.alarm_of)
        """Work on lanes that failed for unknown reasons."""
        self.outgoing = Outgoing(outgoing)
        cache.on_lost_end = self._lost_end
        self.counters = HubCounters()
        self.suspects = Suspects()
        self.crashes = RecentCrashes()
        self.config = config or DeliveryConfig()
        self.groups: dict[int, GroupDelivery] = {}
        self.ready = ReadyBytes(self.config.ready_bytes_max)
        self.evaluations = Evaluations()
        self.dirty_slots: set[LaneSlot] = set()
        """Lanes that may have something to persist."""
        self.persist = asyncio.Event()
        """Set when there is something to persist."""
        self._readers: dict[int, set[GroupDelivery]] = {}
        self._marked: dict[int, GroupDelivery] = {}
        self._pump_scheduled = False
        self._turns: EvaluationTurns[GroupDelivery] = EvaluationTurns()
        self._turns_go_on: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._failing = asyncio.Event()
        self._topics: dict[int, TopicRoute] = {}
        self._snapshot: Snapshot | None = None
        self._leases_hold_until = math.inf
        """No lane's lease passes before that: leases are only ever moved on."""

    # --- what happens -----------------------------------------------------------------------------------------------

    def stored(self, by_queue: Mapping[int, list[LogMessage]]) -> None:
        """Take over what was just committed here."""
        self.cache.add(by_queue)
        for queue_id in by_queue:
            self.queue_went_on(queue_id)

    def stored_before(self, outcome: FrameOutcome) -> None:
        """Take note of messages that are in the log, though not by a commit this broker saw succeed."""
        for queue_id, queue_offset in zip(outcome.queue_ids, outcome.queue_offsets, strict=True):
            if queue_id and self.cache.learn_end(queue_id, queue_offset + 1):
                self.queue_went_on(queue_id)

    def queue_went_on(self, queue_id: int) -> None:
        """Wake the groups that read this queue here."""
        for group in self._readers.get(queue_id, ()):
            group.queue_went_on(queue_id)

    def end_not_found(self, queue_id: int, error: Exception) -> None:
        """Set the look at a queue's end aside, for each lane that reads it here."""
        for group in self._readers.get(queue_id, ()):
            self.aside.failed(LaneWork(group.slots[queue_id].lane.key, Work.LOOKING), error)

    def is_end_set_aside(self, queue_id: int) -> bool:
        """Return whether looking at the queue's end failed a moment ago."""
        return bool(self.aside.units) and any(
            self.aside.is_waiting(LaneWork(group.slots[queue_id].lane.key, Work.LOOKING))
            for group in self._readers.get(queue_id, ())
        )

    def ends_found(self, queue_ids: Sequence[int]) -> None:
        """Note that the ends of these queues can be looked at."""
        found = set(queue_ids) if self.aside.units else ()
        for unit in [unit for unit in self.aside.units if unit.work is Work.LOOKING and unit.key.queue_id in found]:
            self.aside.worked(unit)

    def _lost_end(self, queue_id: int) -> None:
        """Give up the lanes of a queue that lost its end: they have read what is not there, and are claimed anew."""
        self.counters.ends_lost += 1
        for group in list(self._readers.get(queue_id, ())):
            self.suspects.add(group.slots[queue_id].lane.key)
            self.close_lane(group, queue_id)

    def forget_log(self) -> set[LaneKey]:
        """Give up all lanes, and what is remembered of the log: the store goes on with another history.

        Nothing of them is persisted any more. Return those that were certainly still this broker's.
        """
        now = clock.now()
        lanes = [(group, slot) for group in self.groups.values() for slot in group.slots.values()]
        for group, slot in lanes:
            self.close_lane(group, slot.lane.key.queue_id)
        self.cache.forget()
        return {slot.lane.key for _, slot in lanes if now < slot.lease_until}

    def is_behind(self, topic_ids: Collection[int]) -> bool:
        """Whether a group that would take more of these topics has far more to be given than is on its way."""
        return any(group.is_behind(topic_ids) for group in self.groups.values())

    def reads(self, queue_id: int) -> bool:
        """Return whether a lane here reads this queue."""
        return queue_id in self._readers

    def queues_read(self) -> list[int]:
        """Return the queues that lanes here read."""
        return list(self._readers)

    def mark(self, group: GroupDelivery) -> None:
        """Pump *group* in this turn of the event loop, or the next."""
        self._marked[group.route.group_id] = group
        self._schedule_pump()

    def follow(self, snapshot: Snapshot) -> None:
        """Follow a new snapshot: routes of the groups here, and those that are gone."""
        self._snapshot = snapshot
        self._topics = {topic.topic_id: topic for topic in snapshot.topics.values()}
        routes = {route.group_id: route for route in snapshot.groups.values()}
        # A copy: one whose only lane fails at this is gone afterwards.
        for group in list(self.groups.values()):
            # Of every lane, stopped ones too: what is on its way out is held against it, whoever is served.
            for slot in group.slots.values():
                slot.may_hand_out = stress_check(group.route, slot.topic, snapshot)
            route = routes.get(group.route.group_id)
            if route is not None:
                self._follow_route(group, route, snapshot)
                continue
            # Deleted: its streams end with the reason, and the cluster loop gives its lanes up.
            for instance in list(group.instances.values()):
                instance.close(GroupNotFoundError(group.route.namespace, group.route.name))
        # Last: what is being written is held against what was just made current.
        self.outgoing.follow(snapshot.version)

    def refuse_all(self, because: UnavailableError) -> None:
        """Serve no group until the configuration is followed again: what is known of it does not hold any more."""
        for group in list(self.groups.values()):
            group.refuse(because)
        self.outgoing.follow_nothing()

    def _follow_route(self, group: GroupDelivery, route: GroupRoute, snapshot: Snapshot) -> None:
        group.withheld_topics = snapshot.withheld.get(route.group_id, _NO_TOPICS)
        if route.not_understood is not None:
            group.refuse(refusal(name_group(route), route.not_understood))
            return
        group.refusal = None
        self._follow(group, route)

    def _follow(self, group: GroupDelivery, route: GroupRoute) -> None:
        slots = group.slots.values()
        if route is not group.route or any(self._topics.get(slot.topic.topic_id) is not slot.topic for slot in slots):
            group.reroute(route, self._topics)

    # --- instances --------------------------------------------------------------------------------------------------

    def attach(self, route: GroupRoute, instance: Instance) -> GroupDelivery:
        """Attach an instance to its group, which comes into being here with its first one."""
        group = self.groups.get(route.group_id)
        if group is None:
            group = self.groups[route.group_id] = GroupDelivery(
                route,
                self.cache,
                self._start_task,
                self.mark,
                self.touched,
                self.aside,
                self._lane_failed,
                self.ready,
                self.evaluations,
                self.crashes,
            )
            if self._snapshot is not None:
                group.withheld_topics = self._snapshot.withheld.get(route.group_id, _NO_TOPICS)
        group.attach(instance, clock.now())
        return group

    def detach(self, group: GroupDelivery, instance: Instance) -> None:
        """Detach an instance; its group stays until its lanes are given up."""
        group.detach(instance, clock.now())

    # --- lanes ------------------------------------------------------------------------------------------------------

    @property
    def topics(self) -> Mapping[int, TopicRoute]:
        """The topics of this broker's snapshot by their ids."""
        return self._topics

    def open_lane(
        self,
        group: GroupDelivery,
        topic: TopicRoute,
        claimed: ClaimedLane,
        redeliveries: Iterable[RedeliveryRow],
        lease_until: float,
    ) -> None:
        """Serve a lane that was just claimed."""
        assert self._snapshot is not None
        lane: Lane[LogMessage] = Lane(
            claimed.key,
            claimed.epoch,
            claimed.acked_offset,
            claimed.acked_ranges,
            redeliveries,
            lane_config(group.route),
            clock.now(),
        )
        may_hand_out = stress_check(group.route, topic, self._snapshot)
        slot = LaneSlot(lane, topic, Matcher(group.route, topic), may_hand_out, lease_until)
        self._leases_hold_until = min(self._leases_hold_until, lease_until)
        group.add_lane(slot)
        self._readers.setdefault(claimed.key.queue_id, set()).add(group)

    def close_lane(self, group: GroupDelivery, queue_id: int) -> None:
        """Serve a lane no longer. What it had not persisted comes again from its next owner."""
        slot = group.remove_lane(queue_id)
        if slot is None:
            return
        self.counters.lane_closed(slot)
        self.dirty_slots.discard(slot)
        readers = self._readers[queue_id]
        readers.discard(group)
        if not readers:
            del self._readers[queue_id]
        if not group.slots and not group.instances:
            del self.groups[group.route.group_id]

    def _lane_failed(self, group: GroupDelivery, slot: LaneSlot, error: Exception) -> None:
        """Give a lane up whose state cannot be trusted; it is claimed anew after a while, from what is stored."""
        self.aside.failed(LaneWork(slot.lane.key, Work.SERVING), error)
        if group.slots.get(slot.lane.key.queue_id) is slot:
            self.close_lane(group, slot.lane.key.queue_id)

    def alarm_of(self, unit: LaneWork) -> Alarm:
        """Return the alarm that work on a lane fails, without its detail."""
        group_id, _, queue_id = unit.key
        group = self.groups.get(group_id)
        if group is None:
            thing = f"group {group_id}, queue {queue_id}: {unit.work}"
            return Alarm(AlarmKind.LANE_SET_ASIDE, thing, "", group_id=group_id, queue_id=queue_id)
        slot = group.slots.get(queue_id)
        topic = slot.topic if slot is not None else None
        return lane_alarm(AlarmKind.LANE_SET_ASIDE, group.route, topic, queue_id, unit.work)

    def touched(self, slot: LaneSlot) -> None:
        """Note that the lane may have something to persist."""
        self.dirty_slots.add(slot)
        self.persist.set()

    # --- time -------------------------------------------------------------------------------------------------------

    def tick_once(self, now: float) -> None:
        """See to timeouts, retries that are due, leases that may have run out, and reads that failed."""
        if now >= self._leases_hold_until:
            self._close_passed(now)
        for group in list(self.groups.values()):
            group.tick(now)
            if not group.slots and not group.instances:
                self.groups.pop(group.route.group_id, None)

    def _close_passed(self, now: float) -> None:
        """Close the lanes whose leases have passed, and note until when those of the others hold."""
        slots = [(group, slot) for group in self.groups.values() for slot in group.slots.values()]
        for group, slot in slots:
            if now >= slot.lease_until:
                log.warning("delivery.lease_passed", lane=slot.lane.key)
                self.close_lane(group, slot.lane.key.queue_id)
        self._leases_hold_until = min((s.lease_until for _, s in slots if s.lease_until > now), default=math.inf)

    async def run_ticks(self, stop: asyncio.Event) -> None:
        """Tick until *stop* is set."""
        while not stop.is_set():
            self.tick_once(clock.now())
            await pause(stop, self.config.tick_seconds)

    async def run_watch(self, stop: asyncio.Event) -> None:
        """Raise what a read or a turn of the pump failed with, or return when *stop* is set.

        They have handled what an outage of the store does; anything else ends the broker, as in any of its loops.
        """
        while not stop.is_set():
            await pause_or_wake(self._failing, self.config.watch_seconds)
            if self._failure is not None:
                raise self._failure

    def end_reads(self) -> list[asyncio.Task[None]]:
        """Cancel the reads that are under way, and return them."""
        for task in self._tasks:
            task.cancel()
        return [*self._tasks]

    # --- the pump ---------------------------------------------------------------------------------------------------

    def _schedule_pump(self) -> None:
        if not self._pump_scheduled:
            self._pump_scheduled = True
            self._start_task(self._pump())

    async def _pump(self) -> None:
        # A task, that it may be watched like the reads. It waits for nothing.
        self._pump_scheduled = False
        marked = self._marked
        now = clock.now()
        messages_left = self.config.turn_messages_max
        share = max(BATCH_MESSAGES_MAX, messages_left // max(1, len(marked)))
        self._turns.begin()
        for _ in range(len(marked)):
            if messages_left <= 0:
                break
            group = marked.pop(next(iter(marked)))
            messages_left -= self._pump_group(group, now, min(share, messages_left))
        while messages_left > 0 and (group_in_line := self._turns.next_in_line()) is not None:
            messages_left -= self._pump_group(group_in_line, now, min(share, messages_left))
        if marked:
            self._schedule_pump()
        self._go_on_in(self._turns.end())

    def _pump_group(self, group: GroupDelivery, now: float, messages_max: int) -> int:
        """Pump one group; return how much work it was, in messages."""
        group_id = group.route.group_id
        budget = PumpBudget(messages_max, self._turns.slice_for(group_id))
        if group.pump(now, budget):
            # Behind the others.
            self.mark(group)
        self._turns.took(group_id, group)
        return messages_max - budget.messages

    def _go_on_in(self, seconds: float | None) -> None:
        """Pump again when there is time for expressions again, for the groups that wait for it."""
        if self._turns_go_on is not None:
            self._turns_go_on.cancel()
            self._turns_go_on = None
        if seconds is not None:
            self._turns_go_on = asyncio.get_running_loop().call_later(seconds, self._schedule_pump)

    def _start_task(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failure = self._failure or failure
            self._failing.set()
