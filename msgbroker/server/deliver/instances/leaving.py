"""What leaves the broker is checked as it leaves: it may have waited in an outbox for long.

At hand-out a lane decides by what is so then. When a response is put together each batch is held against what is so
now: its lane's lease, its time to answer, and, for stress messages, who may see them. What may not leave goes back to
its lane, or is settled without delivery; in neither case was it an attempt. What is of a lane that was given up is
dropped: nobody here can say any more who may have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from msgbroker.engine.lane.config import Handout
from msgbroker.server.deliver.instances.batch import Batch, Stress, wires_of
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.deliver.lanes.lane_group import LaneGroup
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.log.message import LogMessage


@dataclass(slots=True)
class StressCheck:
    """Asks for one hand-out whether stress messages may leave, and notes whether one did."""

    may_hand_out: Callable[[LogMessage], bool]
    has_passed: bool = False

    def __call__(self, message: LogMessage) -> bool:
        """Return whether this stress message may leave."""
        is_permitted = self.may_hand_out(message)
        self.has_passed |= is_permitted
        return is_permitted


@dataclass(frozen=True, slots=True)
class Leaving:
    """Checks all that leaves to the instances of one group."""

    group: LaneGroup

    def check(self, instance: Instance, batch: Batch, now: float) -> Batch | None:
        """Return what of *batch* may be written now, if anything."""
        if now >= batch.deadline:
            self.give_back(instance, (batch,), now)
            return None
        owned = self._lane_of(batch)
        if owned is None:
            # Not taken out with its lane: a late answer had settled all that the instance held of it.
            return None
        if batch.stress is None or owned.may_hand_out is batch.stress.permitted_by:
            return batch
        return self._without_denied(instance, batch, batch.stress.handout, owned)

    def give_back(self, instance: Instance, batches: Iterable[Batch], now: float) -> None:
        """Return what was never written to its lanes: that was no attempt."""
        for batch in batches:
            owned = self._lane_of(batch)
            if owned is None:
                continue
            with self.group.trusted(owned):
                instance.let_go(owned.lane.withdraw(instance.name, batch.handed, now))
                self.group.touched(owned)
                self.group.activate(owned)

    def permits(self, batches: Iterable[Batch]) -> bool:
        """Return whether all stress messages in *batches* may be written as things are."""
        return all(self._permits(batch, batch.stress.handout) for batch in batches if batch.stress is not None)

    def _permits(self, batch: Batch, handout: Handout[LogMessage]) -> bool:
        owned = self._lane_of(batch)
        return owned is not None and not _denied_of(handout, owned).count

    def _without_denied(
        self, instance: Instance, batch: Batch, handout: Handout[LogMessage], owned: OwnedLane
    ) -> Batch | None:
        """Settle what the group may not see any more, and return the rest."""
        denied = _denied_of(handout, owned)
        if denied.count:
            with self.group.trusted(owned):
                instance.let_go(owned.lane.deny(instance.name, denied.handed))
                self.group.touched(owned)
                self.group.activate(owned)
            gone = {id(message) for message in [*denied.fresh, *(again.message for again in denied.again)]}
            handout = Handout(
                [again for again in handout.again if id(again.message) not in gone],
                [message for message in handout.fresh if id(message) not in gone],
            )
        if not handout.count:
            return None
        wires, size_bytes = wires_of(handout.fresh, handout.again)
        stress = Stress(owned.may_hand_out, handout)
        return replace(batch, wires=wires, size_bytes=size_bytes, handed=handout.handed, stress=stress)

    def _lane_of(self, batch: Batch) -> OwnedLane | None:
        """Return the lane that handed it out, if it is still here."""
        owned = self.group.lane_held(batch.queue_id, batch.epoch)
        return owned if owned is not None and owned.lane.epoch == batch.epoch else None


def _denied_of(handout: Handout[LogMessage], owned: OwnedLane) -> Handout[LogMessage]:
    """Return what of a hand-out its group may not see any more."""

    def is_denied(message: LogMessage) -> bool:
        return message.stress and not owned.may_hand_out(message)

    return Handout(
        [again for again in handout.again if is_denied(again.message)],
        [message for message in handout.fresh if is_denied(message)],
    )
