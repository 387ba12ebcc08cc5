"""Delivery of one subscriber group on this broker: its lanes here, its instances here, and the moves between them.

`pump` does all that can be done without waiting: it takes turns over the lanes and the instances with credit, feeds
lanes from the log cache, and gives what they hand out to the instances. Where a lane needs msgdb it starts one read and
goes on; the read's end makes the group pump again.

Only *active* lanes get turns. A lane that had a turn with an instance ready and gave nothing is inactive until an event
happens to it (its queue went on, a read ended, a verdict, a due retry), so that a group with thousands of quiet lanes
costs what its busy ones cost. Ticks go by the same rule: only an event or a turn gives a lane something to wait for, so
a tick looks at the lanes that had one, until they wait for nothing. And so it is with instances: one that is found to
have no room gets no turns until `Instance.on_room` says that it may have some, so that thousands of them that have all
they want cost nothing.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from confdb.routes import GroupRoute, TopicRoute
from msgbroker.contract.errors import InstanceReplacedError, UnavailableError
from msgbroker.engine.matching import Matcher
from msgbroker.engine.verdicts import Verdict
from msgbroker.server.alarms.set_aside import SetAside
from msgbroker.server.deliver.expressions.evaluations import Evaluations
from msgbroker.server.deliver.expressions.turns import TimeSlice
from msgbroker.server.deliver.instances.blame import blame_first
from msgbroker.server.deliver.instances.instance import Instance, InstanceRoom
from msgbroker.server.deliver.instances.leaving import Leaving, StressCheck
from msgbroker.server.deliver.instances.recent_crashes import RecentCrashes
from msgbroker.server.deliver.instances.taken_back import tell_taken_back
from msgbroker.server.deliver.lane_rules import lane_config, times_of
from msgbroker.server.deliver.lane_work import LaneWork, Work
from msgbroker.server.deliver.owned_lane import LaneSlot
from msgbroker.server.deliver.pump_budget import PumpBudget
from msgbroker.server.deliver.reader import BATCH_BYTES_MAX, LaneReader, ReadyBytes
from msgbroker.server.log.cache import LogCache

BATCH_MESSAGES_MAX = 256
BEHIND_MESSAGES = 4_000
"""So many are on their way through a broker at full speed: a tenth of a second."""
LOOKS_MAX = 1_000
"""So many instances without room are looked at in one go: in a millisecond."""
REST_SECONDS = 1.0
"""An instance that did not begin with messages in time gets none for so long: time for others to take them."""


@dataclass(slots=True, eq=False)
class GroupDelivery:
    """See the module."""

    route: GroupRoute
    cache: LogCache
    start_task: Callable[[Coroutine[None, None, None]], None]
    wake: Callable[[GroupDelivery], None]
    """Pump this group soon."""
    touched: Callable[[LaneSlot], None]
    """This lane may have something to persist."""
    aside: SetAside[LaneWork]
    """Work on lanes that failed for unknown reasons."""
    lane_failed: Callable[[GroupDelivery, LaneSlot, Exception], None]
    """What happens in memory failed for this lane: it cannot be trusted any more."""
    ready: ReadyBytes = field(default_factory=ReadyBytes)
    """Of all groups here."""
    evaluations: Evaluations = field(default_factory=Evaluations)
    """Of all groups here."""
    crashes: RecentCrashes = field(default_factory=RecentCrashes)
    """Of all groups here."""
    instances: dict[str, Instance] = field(default_factory=dict)
    """By their names."""
    slots: dict[int, LaneSlot] = field(default_factory=dict)
    withheld_topics: frozenset[int] = frozenset()
    """Topics of which nothing is served here: something of them is not understood."""
    refusal: UnavailableError | None = None
    """Why the group is served no longer; then `route` is the last one that was understood."""
    _attached: dict[str, Instance] = field(default_factory=dict)
    """The same instances by their ids, of which each is attached once."""
    _takers: OrderedDict[str, Instance] = field(default_factory=OrderedDict)
    """Instances that may have room, by their names, in the order of their turns."""
    _active: OrderedDict[int, LaneSlot] = field(default_factory=OrderedDict)
    """Lanes that may have something to hand out, in the order of their turns."""
    _first: OrderedDict[int, LaneSlot] = field(default_factory=OrderedDict)
    """Beside these, the lanes whose blocks were just read: their turns come before all others."""
    _watched: dict[int, LaneSlot] = field(default_factory=dict)
    """Lanes that may wait for a time or a read: every other one has neither."""
    _resting: dict[str, float] = field(default_factory=dict)
    """Until when, by the name of the instance."""

    _reader: LaneReader = field(init=False)
    _leaving: Leaving = field(init=False)

    def __post_init__(self) -> None:
        self._leaving = Leaving(self.slots, self.touched, self.activate, self.trusted)
        self._reader = LaneReader(
            self.cache,
            self.ready,
            self.start_task,
            self.touched,
            self.activate,
            self._activate_first,
            self.aside,
            self.evaluations,
        )

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
        instance.way_out = self._leaving
        instance.credit_max = self.route.unsettled_max
        instance.on_room = partial(self._takers.setdefault, instance.name, instance)
        instance.outlet.on_room = partial(self._give_turns, instance)
        self._give_turns(instance)

    def _give_turns(self, instance: Instance) -> None:
        instance.on_room()
        self.wake(self)

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
        if has_crashed and blame_first((slot.lane for slot in self.slots.values()), instance.name):
            self.crashes.note(self.route.group_id, instance, now)
        instance.close()
        instance.on_room = _nothing
        self._takers.pop(instance.name, None)
        self._resting.pop(instance.name, None)
        for slot in list(self.slots.values()):
            with self.trusted(slot):
                counts = not instance.has_left
                if slot.lane.return_instance(instance.name, now, counts=counts, has_crashed=has_crashed):
                    self.touched(slot)
                    self.activate(slot)

    @contextmanager
    def trusted(self, slot: LaneSlot) -> Iterator[None]:
        """Give the lane up if what happens to it fails: its state in memory may be anything then."""
        try:
            yield
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - one lane must not end all the others
            self.lane_failed(self, slot, error)

    def begin(self, instance: Instance, queue_id: int, epoch: int, first: int, last: int, attempt: int) -> None:
        """Note what an instance has begun; of a lane that is not here any more, nothing."""
        slot = self.slots.get(queue_id)
        if slot is not None:
            with self.trusted(slot):
                slot.lane.begin(instance.name, first, last, attempt, epoch)

    def extend(
        self,
        instance: Instance,
        queue_id: int,
        epoch: int,
        first: int,
        last: int,
        attempt: int,
        now: float,
        seconds: float,
    ) -> int:
        """Let an instance keep messages for so long from now on; return how many. Of a lane that is not here, none."""
        slot = self.slots.get(queue_id)
        count = 0
        if slot is not None:
            with self.trusted(slot):
                count = slot.lane.extend(instance.name, first, last, attempt, now, seconds, epoch)
        return count

    def settle(
        self,
        instance: Instance,
        queue_id: int,
        epoch: int,
        verdict: Verdict,
        first: int,
        last: int,
        attempt: int,
        now: float,
        delay_seconds: float | None,
        error: str,
    ) -> int:
        """Apply a verdict; return how many messages it settled. A lane that is not here any more settles nothing."""
        slot = self.slots.get(queue_id)
        if slot is None or slot.lane.epoch != epoch:
            return 0
        count = 0
        with self.trusted(slot):
            count = slot.lane.settle(instance.name, verdict, first, last, attempt, now, delay_seconds, error).count
            if count:
                instance.unsettled -= count
                self.touched(slot)
                self.activate(slot)
        return count

    # --- lanes ------------------------------------------------------------------------------------------------------

    def activate(self, slot: LaneSlot) -> None:
        """Give the lane turns: something happened to it."""
        queue_id = slot.lane.key.queue_id
        if self.slots.get(queue_id) is not slot:
            # Closed while a read was under way. Its successor's turns are not its own.
            return
        if queue_id not in self._first:
            self._active.setdefault(queue_id, slot)
        self._watched[queue_id] = slot
        self.wake(self)

    def _activate_first(self, slot: LaneSlot) -> None:
        queue_id = slot.lane.key.queue_id
        if self.slots.get(queue_id) is slot:
            self._active.pop(queue_id, None)
            self._first[queue_id] = slot
            self.activate(slot)

    def queue_went_on(self, queue_id: int) -> None:
        """Take note that there is more in a queue."""
        slot = self.slots.get(queue_id)
        if slot is not None:
            self.activate(slot)

    def serves(self, topic_id: int) -> bool:
        """Return whether lanes of the topic may be opened here."""
        return self.refusal is None and topic_id not in self.withheld_topics

    def refuse(self, because: UnavailableError) -> None:
        """Serve the group no longer: nothing more is read or handed out, and its instances settle and go elsewhere."""
        if self.refusal is None:
            for instance in self.instances.values():
                instance.send_away()
        self.refusal = because
        for slot in list(self.slots.values()):
            self.stop_lane(slot)

    def add_lane(self, slot: LaneSlot) -> None:
        """Serve a lane from now on."""
        self.slots[slot.lane.key.queue_id] = slot
        self.activate(slot)

    def remove_lane(self, queue_id: int) -> LaneSlot | None:
        """Serve a lane no longer: its instances learn that its messages are not theirs any more."""
        slot = self.slots.pop(queue_id, None)
        if slot is None:
            return None
        self._active.pop(queue_id, None)
        self._first.pop(queue_id, None)
        self._watched.pop(queue_id, None)
        self._reader.forget(slot)
        unsettled = dict(slot.lane.unsettled_by_instance)
        slot.lane.stop()
        self._reader.count(slot)
        for name, count in unsettled.items():
            instance = self.instances.get(name)
            if instance is not None and count:
                instance.unsettled -= count
                instance.revoke(queue_id, slot.lane.epoch)
        self.wake(self)
        return slot

    def stop_lane(self, slot: LaneSlot) -> None:
        """Read and hand out nothing more of a lane that is to move, and wait for no answer to what was not written."""
        slot.lane.stop()
        self.take_back_unwritten(slot)
        self._reader.count(slot)

    def take_back_unwritten(self, slot: LaneSlot) -> None:
        """Let what waits of a lane, and was written to nobody, go back to it."""
        # Of those who hold nothing of it nothing waits.
        for name in list(slot.lane.unsettled_by_instance):
            holder = self.instances.get(name)
            if holder is not None:
                holder.give_back_lane(slot.lane.key.queue_id)

    def tick(self, now: float) -> None:
        """Take back what was not answered in time, see to what is due, and try again what could not be read."""
        if self._resting:
            self._end_rests(now)
        if not self._watched:
            return
        due = [slot for slot in list(self._watched.values()) if self._is_due(slot, now)]
        if due:
            for holder in self.instances.values():
                holder.give_back_overdue(now)
        for slot in due:
            with self.trusted(slot):
                self._expire(slot, now)

    def _is_due(self, slot: LaneSlot, now: float) -> bool:
        """Return whether the lane waits for a time that has come; watch it no longer where it waits for nothing."""
        wakeup: float | None = None
        with self.trusted(slot):
            wakeup = slot.lane.next_wakeup()
            if wakeup is None and not (slot.is_reading or slot.is_fetching):
                self._watched.pop(slot.lane.key.queue_id, None)
            if slot.is_read_failed:
                slot.is_read_failed = self._is_reading_aside(slot)
                self.activate(slot)
        return wakeup is not None and wakeup <= now

    def _is_reading_aside(self, slot: LaneSlot) -> bool:
        return any(self.aside.is_waiting(LaneWork(slot.lane.key, work)) for work in (Work.READING, Work.FETCHING))

    def _expire(self, slot: LaneSlot, now: float) -> None:
        self._note_silence(slot, now)
        tell_taken_back(self.instances, slot.lane, now)
        for name, count in slot.lane.expire(now).items():
            instance = self.instances.get(name)
            if instance is not None:
                instance.unsettled -= count
        self.touched(slot)
        self.activate(slot)

    def _note_silence(self, slot: LaneSlot, now: float) -> None:
        """Let others come first who do not leave messages unbegun, and count one of an instance that says nothing.

        It may hang in a message that kept it from saying so, as one would that blocks its event loop.
        """
        for name in slot.lane.late_and_not_begun(now):
            instance = self.instances.get(name)
            if instance is None:
                continue
            instance.is_resting = True
            self._resting[name] = now + REST_SECONDS
            if now - instance.said_at >= self.route.ack_timeout_seconds:
                blame_first((each.lane for each in self.slots.values()), name)
                # Once for each time that it should have said something.
                instance.said_at = now

    def _end_rests(self, now: float) -> None:
        for name in [name for name, until in self._resting.items() if until <= now]:
            del self._resting[name]
            self.instances[name].is_resting = False
            self.wake(self)

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
        for slot in list(self.slots.values()):
            if slot.topic.topic_id in self.withheld_topics:
                # At once: what is matched by the old configuration from now on could be passed over for good.
                self.stop_lane(slot)
                continue
            with self.trusted(slot):
                slot.topic = topics.get(slot.topic.topic_id, slot.topic)
                slot.match_by(Matcher(route, slot.topic))
                slot.lane.reconfigure(config)
                self.activate(slot)
        if is_other_time:
            for instance in self.instances.values():
                instance.follow_limits(route)
        self.wake(self)

    def is_behind(self, topic_ids: Collection[int]) -> bool:
        """Whether the broker keeps instances waiting for messages of one of these topics.

        They have room, and it reads for them or has much in memory. Who takes no more, for a second or for days, is not
        waited for, nor who is held up by expressions of its own.
        """
        if not (self._active or self._first or self._reader.reads_under_way):
            return False
        if self.route.paused or not self._keeps_waiting(topic_ids):
            return False
        return self._first_taker() is not None

    def _keeps_waiting(self, topic_ids: Collection[int]) -> bool:
        if self._reader.reads_for(topic_ids):
            return True
        end_of = self.cache.end_of
        lag = sum(
            end_of(queue_id) - slot.lane.next_offset
            for queue_id, slot in itertools.chain(self._first.items(), self._active.items())
            if slot.topic.topic_id in topic_ids and not slot.is_dear
        )
        return lag > BEHIND_MESSAGES

    # --- the pump ---------------------------------------------------------------------------------------------------

    def pump(self, now: float, budget: PumpBudget) -> bool:
        """Hand out what can be handed out; return whether there is more than the budget allowed."""
        is_more = self._take_turns(now, budget)
        if budget.time_slice.held:
            # What had no time left for its expressions keeps its turn; the hub says when there is time again.
            for queue_id, slot in budget.time_slice.held.items():
                if self.slots.get(queue_id) is slot:
                    self._active[queue_id] = slot
        return is_more

    def _take_turns(self, now: float, budget: PumpBudget) -> bool:
        if self.route.paused or not self._takers:
            return False
        active = self._active
        while line := self._first or active:
            if budget.messages <= 0:
                return True
            found = self._next_taker()
            if found is None:
                # Those that nobody has looked at yet, if any: in the next turn of the event loop.
                return bool(self._takers)
            taker, room = found
            queue_id, slot = line.popitem(last=False)
            self._watched[queue_id] = slot
            given = 0
            # As `trusted` does it, for the price of nothing: this is done for every batch.
            try:
                given = self._give(slot, taker, room, now, budget.time_slice)
            except MemoryError:
                raise
            except Exception as error:  # noqa: BLE001 - one lane must not end all the others
                self.lane_failed(self, slot, error)
            if given:
                # Behind the others: its next turn.
                active[queue_id] = slot
                budget.messages -= given
        return False

    def _next_taker(self) -> tuple[Instance, InstanceRoom] | None:
        """Return the next instance in turn that has room, and its room."""
        found = self._first_taker()
        if found is not None:
            self._takers.move_to_end(found[0].name)
        return found

    def _first_taker(self) -> tuple[Instance, InstanceRoom] | None:
        """Return the first instance in turn that has room, and its room. Those that have none get no further turns."""
        takers = self._takers
        for _ in range(min(len(takers), LOOKS_MAX)):
            name, taker = next(iter(takers.items()))
            room = taker.room
            if room.messages > 0:
                return taker, room
            del takers[name]
        return None

    def _give(self, slot: LaneSlot, taker: Instance, room: InstanceRoom, now: float, time_slice: TimeSlice) -> int:
        """Hand out one batch of *slot* to *taker*; return how much work it was, in messages."""
        lane = slot.lane
        if now >= slot.lease_until:
            # Perhaps another broker's by now. The next tick closes it.
            return 0
        self._reader.fetch_due(slot, now)
        count_max = min(room.messages, BATCH_MESSAGES_MAX)
        bytes_max = min(room.size_bytes, BATCH_BYTES_MAX)
        work = 0
        if lane.ready_count < BATCH_MESSAGES_MAX:
            work = self._reader.feed(slot, count_max, bytes_max, time_slice)
        ready_count = lane.ready_count
        if not ready_count:
            return work
        check = StressCheck(slot.may_hand_out)
        handout = lane.take(taker.name, count_max, bytes_max, now, check, taker.begun, taker.handed_count)
        if handout.count:
            permitted_by = slot.may_hand_out if check.has_passed else None
            taker.give(lane.key.queue_id, lane.epoch, handout, slot, permitted_by)
        self._reader.count(slot)
        self.touched(slot)
        # What was denied was work as well: there may be more behind it.
        return max(work, ready_count - lane.ready_count)


def _nothing() -> None:
    """Do nothing."""
