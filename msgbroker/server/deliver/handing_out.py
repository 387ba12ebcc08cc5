"""What a group does in its turn of the pump: its lanes hand out to its instances, in turns over both.

A lane's turn is one batch for one instance: the reader feeds the lane from the log cache, `Lane.take` says what the
instance gets, and that goes to the instance's outbox. Where a lane needs msgdb, the reader starts a read and the turn
is over; the read's end gives the lane its next one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from msgbroker.server.deliver.expressions.turns import TimeSlice
from msgbroker.server.deliver.instances.instance import Instance, InstanceRoom
from msgbroker.server.deliver.instances.leaving import StressCheck
from msgbroker.server.deliver.lane_turns import InstanceTurns, LaneTurns
from msgbroker.server.deliver.lane_waits import LaneWaits
from msgbroker.server.deliver.lanes.lane_group import LaneGroup
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.deliver.pump import BATCH_MESSAGES_MAX, PumpBudget
from msgbroker.server.deliver.reader import BATCH_BYTES_MAX, LaneReader
from msgbroker.server.log.cache import LogCache

BEHIND_MESSAGES: Final = 4_000
"""A group with a larger lag is behind: so many messages are on their way through a broker at full speed, in 0.1 s."""


@dataclass(slots=True, eq=False, kw_only=True)
class HandingOut:
    """The turns of one group's lanes and instances, and what is handed out in them."""

    group: LaneGroup
    reader: LaneReader
    waits: LaneWaits
    cache: LogCache
    lanes: LaneTurns = field(default_factory=LaneTurns)
    """The lanes that may have something to hand out."""
    takers: InstanceTurns = field(default_factory=InstanceTurns)
    """The instances that may have room."""

    def hand_out(self, now: float, budget: PumpBudget) -> bool:
        """Hand out what can be handed out; return whether there is more than the budget allowed."""
        is_more = self._take_turns(now, budget)
        if budget.time_slice.held:
            # What had no time left for its expressions keeps its turn; the pump says when there is time again.
            for queue_id, owned in budget.time_slice.held.items():
                if self.group.lanes.get(queue_id) is owned:
                    self.lanes.put_back(owned)
        return is_more

    def _take_turns(self, now: float, budget: PumpBudget) -> bool:
        if self.group.route.paused or not self.takers:
            return False
        lanes, takers = self.lanes, self.takers
        while lanes:
            if budget.messages <= 0:
                return True
            found = takers.next()
            if found is None:
                # Those that nobody has looked at yet, if any: in the next turn of the event loop.
                return bool(takers)
            taker, room = found
            owned = lanes.take()
            # It may wait for a time or a read after this.
            self.waits.watch(owned)
            given = 0
            # As `trusted` does it, for the price of nothing: this is done for every batch.
            try:
                given = self._give(owned, taker, room, now, time_slice=budget.time_slice)
            except MemoryError:
                raise
            except Exception as error:  # noqa: BLE001 - one lane must not end all the others
                self.group.lane_failed(owned, error)
            if given:
                lanes.put_back(owned)
                budget.messages -= given
        return False

    def _give(self, owned: OwnedLane, taker: Instance, room: InstanceRoom, now: float, *, time_slice: TimeSlice) -> int:
        """Hand out one batch of *owned* to *taker*; return how much work it was, in messages."""
        lane = owned.lane
        if now >= owned.lease_until:
            # Perhaps another broker's by now. The next tick closes it.
            return 0
        self.reader.fetch_due(owned, now)
        count_max = min(room.messages, BATCH_MESSAGES_MAX)
        bytes_max = min(room.size_bytes, BATCH_BYTES_MAX)
        work = 0
        if lane.ready_count < BATCH_MESSAGES_MAX:
            work = self.reader.feed(owned, count_max, bytes_max, time_slice)
        ready_count = lane.ready_count
        if not ready_count:
            return work
        check = StressCheck(owned.may_hand_out)
        begun, place = taker.begun, taker.handed_count
        handout = lane.take(taker.name, count_max, bytes_max, now, check, begun=begun, place=place)
        if handout.count:
            permitted_by = owned.may_hand_out if check.has_passed else None
            taker.give(lane.key.queue_id, lane.epoch, handout, owned, permitted_by)
            owned.trace.handed_out(owned.topic.trace_rate, taker.instance_id, handout, now)
        self.reader.count(owned)
        self.group.touched(owned)
        # What was denied was work as well: there may be more behind it.
        return max(work, ready_count - lane.ready_count)

    def is_behind(self, topic_ids: Collection[int]) -> bool:
        """Whether the broker keeps instances waiting for messages of one of these topics.

        They have room, and it reads for them or has much in memory. Who takes no more, for a second or for days, is not
        waited for, nor who is held up by expressions of its own.
        """
        if not (self.lanes or self.reader.reads_under_way):
            return False
        if self.group.route.paused or not self._keeps_waiting(topic_ids):
            return False
        return self.takers.first() is not None

    def _keeps_waiting(self, topic_ids: Collection[int]) -> bool:
        if self.reader.reads_for(topic_ids):
            return True
        end_of = self.cache.end_of
        lag = sum(
            end_of(owned.lane.key.queue_id) - owned.lane.next_offset
            for owned in self.lanes
            if owned.topic.topic_id in topic_ids and not owned.is_dear
        )
        return lag > BEHIND_MESSAGES
