"""The delivery hub: all groups that have instances on this broker, and their lanes.

Who tells whom what, and when:

    at each commit         committer -> hub -> log cache, which keeps the messages for all groups
                           hub -> each group that reads the queue: its lane wants a turn
    at each such event     group -> pump: the group is marked; so it is for credit, verdicts, a read's end, due retries
    in each turn of the    pump -> each marked group -> reader -> lane, fed from the cache
    event loop             group -> `Lane.take` -> outbox of an instance, and the lane -> unpersisted lanes
    at each read's end     task -> reader -> group: the lane wants its turn before the others
    with each tick         hub -> each group: what came too late, what is due; and lanes whose leases passed are closed
    a few times a second   checkpointer -> unpersisted lanes: it takes them all, and persists them together
    with each snapshot     feed -> hub -> each group, and what is being written (`followed_config`)
    where an end is lost   log cache -> hub: the queue's lanes are given up, to be claimed anew
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import structlog

from confdb.routes import GroupRoute, Snapshot, TopicRoute
from msgbroker.contract.errors import UnavailableError
from msgbroker.engine.lane.lane import Lane
from msgbroker.engine.matching import Matcher
from msgbroker.server import clock
from msgbroker.server.alarms.board import AlarmBoard
from msgbroker.server.alarms.names import lane_alarm
from msgbroker.server.alarms.set_aside import SetAside
from msgbroker.server.deliver.counters import BrokerCounters
from msgbroker.server.deliver.expressions.evaluations import Evaluations
from msgbroker.server.deliver.followed_config import FollowedConfig
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.deliver.instances.recent_crashes import RecentCrashes
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.deliver.lanes.rules import lane_config, stress_check
from msgbroker.server.deliver.lanes.to_recheck import LanesToRecheck
from msgbroker.server.deliver.lanes.unpersisted import UnpersistedLanes
from msgbroker.server.deliver.lanes.work import LaneWork, Work
from msgbroker.server.deliver.outgoing import Outgoing, OutgoingConfig
from msgbroker.server.deliver.pump import Pump
from msgbroker.server.deliver.reader import ReadyBytes
from msgbroker.server.deliver.watched_tasks import WatchedTasks
from msgbroker.server.figures.usage import LaneTally, UsageCounts
from msgbroker.server.log.cache import LogCache
from msgbroker.server.log.message import LogMessage
from msgbroker.server.loops import pause
from msgbroker.server.trace.tracing import Tracing
from msgdb.append.outcome import FrameOutcome
from msgdb.lanes.records import ClaimedLane, LaneKey, RedeliveryRow
from msgdb.reports.alarms import Alarm, AlarmKind

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DeliveryConfig:
    """How much delivery does in a turn and holds ready."""

    turn_messages_max: int = 4_000
    """So many are handed out in one turn of the event loop, over all groups."""
    instance_outbox_bytes_max: int = 1024 * 1024
    """So much waits to be written to one instance."""
    ready_bytes_max: int = 64 * 1024 * 1024
    """So much is held, over all lanes, that was read for instances and is not handed out yet."""
    tick_seconds: float = 0.1
    """How late a retry or a timeout may be noticed."""


class DeliveryHub:
    """All that is delivered on this broker, by groups; whoever has news for them, or asks for them, comes here."""

    def __init__(
        self,
        cache: LogCache,
        board: AlarmBoard,
        *,
        config: DeliveryConfig | None = None,
        outgoing: OutgoingConfig | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self.tracing = tracing or Tracing()
        """Where each lane notes what happens to its messages."""
        self.usage = UsageCounts()
        """How many messages are stored and delivered here, in each minute."""
        self.config = config or DeliveryConfig()
        self.cache = cache
        cache.on_went_on(self.queue_went_on)
        cache.on_lost_end(self._lost_end)
        self.aside: SetAside[LaneWork] = SetAside(board, self.alarm_of)
        """The work on lanes that failed for unknown reasons, and when it is tried again."""
        self.outgoing = Outgoing(outgoing)
        self.counters = BrokerCounters()
        self.lanes_to_recheck = LanesToRecheck()
        self.crashes = RecentCrashes()
        self.groups: dict[int, GroupDelivery] = {}
        """The groups that have instances or lanes here, by their ids."""
        self.ready = ReadyBytes(self.config.ready_bytes_max)
        self.evaluations = Evaluations()
        self.unpersisted = UnpersistedLanes()
        self.tasks = WatchedTasks()
        """The reads under way, and turns of the pump."""
        self.pump = Pump(self.tasks, turn_messages_max=self.config.turn_messages_max)
        self._followed = FollowedConfig(self.groups, self.outgoing)
        self._readers: dict[int, set[GroupDelivery]] = {}
        """The groups that read each queue here."""
        self._leases_hold_until = math.inf
        """No lane's lease passes before that: leases are only ever moved on."""

    def lanes(self) -> Iterator[tuple[GroupDelivery, OwnedLane]]:
        """Go through all lanes that are served here, with their groups. Who may close some of them takes a list."""
        return ((group, owned) for group in self.groups.values() for owned in group.lanes.values())

    def group_serving(self, owned: OwnedLane) -> GroupDelivery | None:
        """Return the group that serves this lane here, or None: it was given up, whoever serves its queue by now."""
        group = self.groups.get(owned.lane.key.group_id)
        return group if group is not None and group.lanes.get(owned.lane.key.queue_id) is owned else None

    # --- what happens -----------------------------------------------------------------------------------------------

    def stored(self, by_queue: Mapping[int, list[LogMessage]]) -> None:
        """Take over what was just committed here."""
        self.cache.add(by_queue)

    def stored_before(self, outcome: FrameOutcome) -> None:
        """Take note of messages that are in the log, though not by a commit this broker saw succeed."""
        for queue_id, queue_offset in zip(outcome.queue_ids, outcome.queue_offsets, strict=True):
            if queue_id:
                self.cache.learn_end(queue_id, queue_offset + 1)

    def queue_went_on(self, queue_id: int) -> None:
        """Tell the groups that read this queue here that there is more in it."""
        for group in self._readers.get(queue_id, ()):
            group.queue_went_on(queue_id)

    def end_not_found(self, queue_id: int, error: Exception) -> None:
        """Set the look at a queue's end aside, for each lane that reads it here."""
        for group in self._readers.get(queue_id, ()):
            self.aside.failed(LaneWork(group.lanes[queue_id].lane.key, Work.LOOKING), error)

    def is_end_set_aside(self, queue_id: int) -> bool:
        """Return whether looking at the queue's end failed a moment ago."""
        return bool(self.aside.units) and any(
            self.aside.is_waiting(LaneWork(group.lanes[queue_id].lane.key, Work.LOOKING))
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
            self.lanes_to_recheck.add(group.lanes[queue_id].lane.key)
            self.close_lane(group, queue_id)

    def forget_log(self) -> set[LaneKey]:
        """Give up all lanes, and what is remembered of the log: the store goes on with another history.

        Nothing of them is persisted any more. Return those that were certainly still this broker's.
        """
        now = clock.now()
        lanes = list(self.lanes())
        for group, owned in lanes:
            self.close_lane(group, owned.lane.key.queue_id)
        self.cache.forget()
        return {owned.lane.key for _, owned in lanes if now < owned.lease_until}

    def is_behind(self, topic_ids: Collection[int]) -> bool:
        """Whether a group that would take more of these topics has far more to be given than is on its way."""
        return any(group.is_behind(topic_ids) for group in self.groups.values())

    def reads(self, queue_id: int) -> bool:
        """Return whether a lane here reads this queue."""
        return queue_id in self._readers

    def queues_read(self) -> list[int]:
        """Return the queues that lanes here read."""
        return list(self._readers)

    # --- the configuration ------------------------------------------------------------------------------------------

    @property
    def topics(self) -> Mapping[int, TopicRoute]:
        """The topics of this broker's snapshot by their ids."""
        return self._followed.topics

    def follow(self, snapshot: Snapshot) -> None:
        """Follow a new snapshot: routes of the groups here, and those that are gone."""
        self._followed.follow(snapshot)

    def refuse_all(self, because: UnavailableError) -> None:
        """Serve no group until the configuration is followed again: what is known of it does not hold any more."""
        self._followed.refuse_all(because)

    # --- instances --------------------------------------------------------------------------------------------------

    def attach(self, route: GroupRoute, instance: Instance) -> GroupDelivery:
        """Attach an instance to its group, which comes into being here with its first one."""
        group = self.groups.get(route.group_id)
        if group is None:
            group = self.groups[route.group_id] = GroupDelivery(
                route=route,
                marks=self.pump,
                owner=self,
                unpersisted=self.unpersisted,
                cache=self.cache,
                tasks=self.tasks,
                aside=self.aside,
                ready=self.ready,
                evaluations=self.evaluations,
                crashes=self.crashes,
                counters=self.counters,
                withheld_topics=self._followed.withheld_of(route.group_id),
            )
        group.attach(instance, clock.now())
        return group

    def detach(self, group: GroupDelivery, instance: Instance) -> None:
        """Detach an instance; its group stays until its lanes are given up."""
        group.detach(instance, clock.now())

    # --- lanes ------------------------------------------------------------------------------------------------------

    def open_lane(
        self,
        group: GroupDelivery,
        topic: TopicRoute,
        claimed: ClaimedLane,
        redeliveries: Iterable[RedeliveryRow],
        lease_until: float,
    ) -> None:
        """Serve a lane that was just claimed."""
        tally = LaneTally(self.usage, group.route.group_id, topic.topic_id)
        lane: Lane[LogMessage] = Lane(claimed, redeliveries, lane_config(group.route), clock.now(), tally)
        may_hand_out = stress_check(group.route, topic, self._followed.snapshot)
        matcher = Matcher(group.route, topic, claimed.reset)
        if lane.shelved_count:
            # Subscriptions may have gone on since an owner shelved it.
            lane.reconsider_shelved(matcher.standing_of, clock.now())
        trace = self.tracing.of_lane(claimed.key)
        lane.watch(trace)
        owned = OwnedLane(lane, topic, matcher, may_hand_out, lease_until, claimed.reset, trace=trace)
        self._leases_hold_until = min(self._leases_hold_until, lease_until)
        group.add_lane(owned)
        self._readers.setdefault(claimed.key.queue_id, set()).add(group)

    def close_lane(self, group: GroupDelivery, queue_id: int) -> None:
        """Serve a lane no longer. What it had not persisted comes again from its next owner."""
        owned = group.remove_lane(queue_id)
        if owned is None:
            return
        self.counters.lane_closed(owned)
        self.unpersisted.discard(owned)
        owned.trace.close()
        readers = self._readers[queue_id]
        readers.discard(group)
        if not readers:
            del self._readers[queue_id]
        if not group.lanes and not group.instances:
            del self.groups[group.route.group_id]

    def lane_failed(self, owned: OwnedLane, error: Exception) -> None:
        """Give a lane up whose state cannot be trusted; it is claimed anew after a while, from what is stored."""
        self.aside.failed(LaneWork(owned.lane.key, Work.SERVING), error)
        self.give_up(owned)

    def give_up(self, owned: OwnedLane) -> bool:
        """Serve this lane no longer, if it still is; return whether it was."""
        group = self.group_serving(owned)
        if group is not None:
            self.close_lane(group, owned.lane.key.queue_id)
        return group is not None

    def alarm_of(self, unit: LaneWork) -> Alarm:
        """Return the alarm that work on a lane fails, without its detail."""
        group_id, _, queue_id = unit.key
        group = self.groups.get(group_id)
        if group is None:
            thing = f"group {group_id}, queue {queue_id}: {unit.work}"
            return Alarm(AlarmKind.LANE_SET_ASIDE, thing, "", group_id=group_id, queue_id=queue_id)
        owned = group.lanes.get(queue_id)
        topic = owned.topic if owned is not None else None
        return lane_alarm(AlarmKind.LANE_SET_ASIDE, group.route, topic, queue_id, work=unit.work)

    # --- time -------------------------------------------------------------------------------------------------------

    def tick_once(self, now: float) -> None:
        """See to timeouts, retries that are due, leases that may have run out, and reads that failed."""
        if now >= self._leases_hold_until:
            self._close_passed(now)
        for group in list(self.groups.values()):
            group.tick(now)
            if not group.lanes and not group.instances:
                self.groups.pop(group.route.group_id, None)

    def _close_passed(self, now: float) -> None:
        """Close the lanes whose leases have passed, and note until when those of the others hold."""
        lanes = list(self.lanes())
        for group, owned in lanes:
            if now >= owned.lease_until:
                log.warning("delivery.lease_passed", lane=owned.lane.key)
                self.close_lane(group, owned.lane.key.queue_id)
        self._leases_hold_until = min((s.lease_until for _, s in lanes if s.lease_until > now), default=math.inf)

    async def run_ticks(self, stop: asyncio.Event) -> None:
        """Look for what has become due, or late, until *stop* is set."""
        while not stop.is_set():
            self.tick_once(clock.now())
            await pause(stop, self.config.tick_seconds)
