"""Delivery of one subscriber group on this broker: its lanes here, its instances here, and what happens to them.

What happens to a lane (its queue went on, a read ended, a verdict) gives it a turn, and marks the group to be pumped
soon. In its turn of the pump the group hands out all that can be handed out without waiting (`handing_out`): it takes
turns over the lanes and the instances with credit, feeds lanes from the log cache (`reader`), and gives what they hand
out to the instances. Where a lane needs msgdb the reader starts one read; its end gives the lane its next turn.

Only *active* lanes get turns. A lane that had a turn with an instance ready and gave nothing is inactive until an event
happens to it, so that a group with thousands of quiet lanes costs what its busy ones cost. Ticks go by the same rule
(`lane_waits`), and so do instances: one that is found to have no room gets no turns until `Instance.say_room` says that
it may have some.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from confdb.routes import GroupRoute, TopicRoute
from msgbroker.contract.errors import InstanceReplacedError, UnavailableError
from msgbroker.engine.matching import Matcher
from msgbroker.engine.verdicts import Held, Settlement
from msgbroker.server import clock
from msgbroker.server.alarms.set_aside import SetAside
from msgbroker.server.deliver.counters import BrokerCounters
from msgbroker.server.deliver.expressions.evaluations import Evaluations
from msgbroker.server.deliver.handing_out import HandingOut
from msgbroker.server.deliver.instances.blame import blame_first
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.deliver.instances.leaving import Leaving
from msgbroker.server.deliver.instances.recent_crashes import RecentCrashes
from msgbroker.server.deliver.lane_waits import LaneWaits
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.deliver.lanes.rules import lane_config, times_of
from msgbroker.server.deliver.lanes.unpersisted import UnpersistedLanes
from msgbroker.server.deliver.lanes.work import LaneWork
from msgbroker.server.deliver.pump import Marks, PumpBudget
from msgbroker.server.deliver.reader import LaneReader, ReadyBytes
from msgbroker.server.deliver.trials import FIRST_TRIAL_EPOCH, Trials
from msgbroker.server.deliver.watched_tasks import TaskStarter
from msgbroker.server.log.cache import LogCache


class LaneOwner(Protocol):
    """Who opens and closes the lanes of all groups: the hub."""

    def lane_failed(self, owned: OwnedLane, error: Exception) -> None:
        """Hear that what happens in memory failed for this lane: it cannot be trusted any more, and is given up."""
        ...


@dataclass(slots=True, eq=False, kw_only=True)
class GroupDelivery:
    """A group that has instances, or lanes, on this broker. One thing at a time happens to it: nothing here waits."""

    route: GroupRoute
    marks: Marks
    """Told when the group is to be pumped."""
    owner: LaneOwner
    """Told when a lane cannot be trusted any more."""
    unpersisted: UnpersistedLanes
    """Told of each lane that may have something to persist."""
    cache: LogCache
    """The log, as all groups read it."""
    tasks: TaskStarter
    """Runs the reads."""
    aside: SetAside[LaneWork]
    """The work on lanes that failed for unknown reasons, and when it is tried again."""
    ready: ReadyBytes = field(default_factory=ReadyBytes)
    """What the lanes of all groups here hold ready."""
    evaluations: Evaluations = field(default_factory=Evaluations)
    """What is known of the expressions of all groups here."""
    crashes: RecentCrashes = field(default_factory=RecentCrashes)
    """The instances of all groups here that went away without a word a moment ago."""
    counters: BrokerCounters = field(default_factory=BrokerCounters)
    """What all groups here count of lanes that are gone."""
    instances: dict[str, Instance] = field(default_factory=dict)
    """The instances that are attached here, by their names."""
    lanes: dict[int, OwnedLane] = field(default_factory=dict)
    """The lanes that are served here, by queue_id."""
    trials: Trials = field(default_factory=Trials)
    """What instances here are handed beside."""
    withheld_topics: frozenset[int] = frozenset()
    """Topics of which nothing is served here: something of them is not understood."""
    refusal: UnavailableError | None = None
    """Why the group is served no longer; then `route` is the last one that was understood."""
    _attached: dict[str, Instance] = field(default_factory=dict)
    """The same instances by their ids, of which each is attached once."""
    _waits: LaneWaits = field(init=False)
    _reader: LaneReader = field(init=False)
    _turns: HandingOut = field(init=False)
    _leaving: Leaving = field(init=False)

    def __post_init__(self) -> None:
        self._leaving = Leaving(group=self)
        self._waits = LaneWaits(group=self, aside=self.aside)
        self._reader = LaneReader(
            group=self,
            cache=self.cache,
            ready=self.ready,
            tasks=self.tasks,
            aside=self.aside,
            evaluations=self.evaluations,
        )
        self._turns = HandingOut(group=self, reader=self._reader, waits=self._waits, cache=self.cache)

    # --- what the hub has it do -------------------------------------------------------------------------------------

    def pump(self, now: float, budget: PumpBudget) -> bool:
        """Hand out what can be handed out; return whether there is more than the budget allowed."""
        return self._turns.hand_out(now, budget)

    def tick(self, now: float) -> None:
        """Take back what was not answered in time, see to what is due, and try again what could not be read."""
        self._waits.tick(now)

    def is_behind(self, topic_ids: Collection[int]) -> bool:
        """Whether the broker keeps instances waiting for messages of one of these topics."""
        return self._turns.is_behind(topic_ids)

    def mark(self) -> None:
        """Have the group pumped soon: there may be something to hand out, or room for it."""
        self.marks.mark(self)

    # --- instances --------------------------------------------------------------------------------------------------

    def attach(self, instance: Instance, now: float) -> None:
        """Add an instance; an earlier attachment of the same instance id ends.

        If it is another process's, that one may be dead, its stream not yet found to be, and this may be its successor:
        the newcomer wins. If it lives, its stream ends with an error that keeps it from coming back and so on for ever.
        So does one that somebody pulls beside.
        """
        other = self._attached.get(instance.instance_id)
        if other is not None:
            is_other_process = other.is_of_other_process(instance)
            self.detach(other, now, has_gone=is_other_process)
            if is_other_process or other.pulls is not instance.pulls:
                other.close(InstanceReplacedError(instance.instance_id, instance.host))
        self._attached[instance.instance_id] = self.instances[instance.name] = instance
        say_room = self._turns.takers.adder_of(instance)
        instance.attach_to(self._leaving, credit_max=self.route.unsettled_max, say_room=say_room)
        instance.outlet.on_room(partial(self._give_turns, instance))
        self._give_turns(instance)

    def named(self, instance_id: str) -> list[Instance]:
        """Return the attachment of the instance with that id, if there is one."""
        instance = self._attached.get(instance_id)
        return [] if instance is None else [instance]

    def _give_turns(self, instance: Instance) -> None:
        instance.say_room()
        self.mark()

    def detach(self, instance: Instance, now: float, *, has_gone: bool = True) -> None:
        """Remove an instance: what it had returns to its lanes at once. What it had begun counts as failed.

        Unless it said goodbye. Where it *has_gone* without a word and had begun nothing, one message counts, of those
        that may have been written to it.
        """
        if self.instances.pop(instance.name, None) is None:
            return
        del self._attached[instance.instance_id]
        # It was never written to it.
        instance.give_back()
        has_crashed = has_gone and not instance.has_left and instance.ended_because is None
        if has_crashed and blame_first((owned.lane for owned in self.lanes_and_trials()), instance.name):
            self.crashes.note(self.route.group_id, instance, now)
        instance.close()
        instance.detach()
        self._turns.takers.discard(instance)
        self._waits.forget_instance(instance.name)
        self.trials.instance_gone(instance.name)
        for owned in list(self.lanes.values()):
            with self.trusted(owned):
                counts = not instance.has_left
                if owned.lane.return_instance(instance.name, now, counts=counts, has_crashed=has_crashed):
                    self.touched(owned)
                    self.activate(owned)

    @contextmanager
    def trusted(self, owned: OwnedLane) -> Iterator[None]:
        """Give the lane up if what happens to it fails: its state in memory may be anything then."""
        try:
            yield
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - one lane must not end all the others
            self.lane_failed(owned, error)

    def begin(self, instance: Instance, held: Held) -> None:
        """Note what an instance has begun; of a lane that is not here any more, nothing."""
        owned = self.lane_held(held.queue_id, held.epoch)
        if owned is not None:
            with self.trusted(owned):
                owned.lane.begin(instance.name, held)

    def extend(self, instance: Instance, held: Held, seconds: float, now: float) -> int:
        """Let an instance keep messages for so long from now on; return how many. Of a lane that is not here, none."""
        owned = self.lane_held(held.queue_id, held.epoch)
        count = 0
        if owned is not None:
            with self.trusted(owned):
                count = owned.lane.extend(instance.name, held, seconds, now)
        return count

    def settle(self, instance: Instance, settlement: Settlement, now: float) -> int:
        """Apply a verdict; return how many messages it settled. Of a lane that is not here any more it is stale."""
        held = settlement.held
        owned = self.lane_held(held.queue_id, held.epoch)
        if owned is None:
            self.counters.settled_elsewhere(held)
            return 0
        count = 0
        with self.trusted(owned):
            count = owned.lane.settle(instance.name, settlement, now).count
            if count:
                instance.let_go(count)
                if held.epoch >= FIRST_TRIAL_EPOCH:
                    self.trials.heard(settlement)
                    return count
                instance.heard.note(settlement.verdict, count, now)
                self.touched(owned)
                self.activate(owned)
        return count

    # --- lanes ------------------------------------------------------------------------------------------------------

    def lane_held(self, queue_id: int, epoch: int) -> OwnedLane | None:
        """Return the lane here of which an instance holds something, as it names it; its epoch may have passed."""
        return self.lanes.get(queue_id) if epoch < FIRST_TRIAL_EPOCH else self.trials.find(queue_id, epoch)

    def lanes_and_trials(self) -> Iterator[OwnedLane]:
        """Go through all that messages are handed out of here."""
        yield from self.lanes.values()
        yield from self.trials.lanes()

    def touched(self, owned: OwnedLane) -> None:
        """Note that the lane may have something to persist."""
        self.unpersisted.add(owned)

    def activate(self, owned: OwnedLane) -> None:
        """Give the lane turns: something happened to it."""
        if self.lanes.get(owned.lane.key.queue_id) is not owned:
            # Closed while a read was under way. Its successor's turns are not its own.
            return
        self._turns.lanes.add(owned)
        self._waits.watch(owned)
        self.mark()

    def activate_first(self, owned: OwnedLane) -> None:
        """Give the lane a turn before all others: its block was just read."""
        if self.lanes.get(owned.lane.key.queue_id) is owned:
            self._turns.lanes.add_first(owned)
            self.activate(owned)

    def lane_failed(self, owned: OwnedLane, error: Exception) -> None:
        """Have the lane given up: its state in memory may be anything."""
        self.owner.lane_failed(owned, error)

    def queue_went_on(self, queue_id: int) -> None:
        """Take note that there is more in a queue."""
        owned = self.lanes.get(queue_id)
        if owned is not None:
            self.activate(owned)

    def serves(self, topic_id: int) -> bool:
        """Return whether lanes of the topic may be opened here."""
        return self.refusal is None and topic_id not in self.withheld_topics

    def refuse(self, because: UnavailableError) -> None:
        """Serve the group no longer: nothing more is read or handed out, and its instances settle and go elsewhere."""
        if self.refusal is None:
            for instance in self.instances.values():
                instance.send_away()
        self.refusal = because
        for owned in list(self.lanes.values()):
            self.stop_lane(owned)
        # What may be handed out is not known any more; what was tried and not written is said to be that.
        for owned in self.trials.lanes():
            self.take_back_unwritten(owned)

    def add_lane(self, owned: OwnedLane) -> None:
        """Serve a lane from now on."""
        self.lanes[owned.lane.key.queue_id] = owned
        self.activate(owned)

    def remove_lane(self, queue_id: int) -> OwnedLane | None:
        """Serve a lane no longer: its instances learn that its messages are not theirs any more."""
        owned = self.lanes.pop(queue_id, None)
        if owned is None:
            return None
        self._turns.lanes.discard(queue_id)
        self._waits.forget_lane(queue_id)
        self._reader.forget(owned)
        unsettled = dict(owned.lane.unsettled_by_instance)
        owned.lane.stop()
        self._reader.count(owned)
        for name, count in unsettled.items():
            instance = self.instances.get(name)
            if instance is not None and count:
                instance.let_go(count)
                instance.revoke(queue_id, owned.lane.epoch)
        self.mark()
        return owned

    def stop_lane(self, owned: OwnedLane) -> None:
        """Read and hand out nothing more of a lane that is to move, and wait for no answer to what was not written."""
        owned.lane.stop()
        self.take_back_unwritten(owned)
        self._reader.count(owned)

    def take_back_unwritten(self, owned: OwnedLane) -> None:
        """Let what waits of a lane, and was written to nobody, go back to it."""
        # Of those who hold nothing of it nothing waits.
        for name in list(owned.lane.unsettled_by_instance):
            holder = self.instances.get(name)
            if holder is not None:
                holder.give_back_lane(owned.lane.key.queue_id, owned.lane.epoch)

    def reroute(self, route: GroupRoute, topics: dict[int, TopicRoute]) -> None:
        """Follow a change of the configuration: matching and limits.

        What is written to an instance is to be answered within the ack timeout that it was told before: it lets go by
        itself what it did not begin in that time.
        """
        is_other_time = times_of(route) != times_of(self.route)
        self.route = route
        for instance in self.instances.values():
            instance.credit_max = route.unsettled_max
        config = lane_config(route)
        for owned in list(self.lanes.values()):
            if owned.topic.topic_id in self.withheld_topics:
                # At once: what is matched by the old configuration from now on could be passed over for good.
                self.stop_lane(owned)
                continue
            with self.trusted(owned):
                owned.topic = topics.get(owned.topic.topic_id, owned.topic)
                before = owned.matcher.paused_ids
                owned.match_by(Matcher(route, owned.topic, owned.reset))
                owned.lane.reconfigure(config)
                if owned.matcher.paused_ids != before:
                    self._follow_pauses(owned, before)
                self.activate(owned)
        if is_other_time:
            for instance in self.instances.values():
                instance.follow_limits(route)
        self.mark()

    def _follow_pauses(self, owned: OwnedLane, before: frozenset[int]) -> None:
        """Let what paused subscriptions want wait, and what waited for those that go on come."""
        now = clock.now()
        if owned.matcher.paused_ids - before:
            owned.lane.reconsider_ready(now)
        owned.lane.reconsider_shelved(owned.matcher.standing_of, now)
        self._reader.count(owned)
        self.touched(owned)
