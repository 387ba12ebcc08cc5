"""Fair turns: which instance takes from which lane next.

Lanes that have something take turns, instances that have credit take turns, and each turn is one batch: so batches stay
large, and nobody waits for more than one turn of each other. Nothing here walks over those that have nothing to do.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

LaneT = TypeVar("LaneT", bound=Hashable)
InstanceT = TypeVar("InstanceT", bound=Hashable)


class Turn(NamedTuple, Generic[LaneT, InstanceT]):
    """One batch of a lane goes to an instance."""

    lane: LaneT
    instance: InstanceT


class Turns(Generic[LaneT, InstanceT]):
    """Round robin of a group's lanes over its instances."""

    def __init__(self) -> None:
        self._lanes: OrderedDict[LaneT, None] = OrderedDict()
        self._instances: OrderedDict[InstanceT, None] = OrderedDict()

    def lane_ready(self, lane: LaneT) -> None:
        """Note that the lane has something to hand out; a new one waits behind the others."""
        self._lanes.setdefault(lane, None)

    def lane_idle(self, lane: LaneT) -> None:
        """Note that the lane has nothing now, or is gone."""
        self._lanes.pop(lane, None)

    def instance_open(self, instance: InstanceT) -> None:
        """Note that the instance has credit; a new one waits behind the others."""
        self._instances.setdefault(instance, None)

    def instance_full(self, instance: InstanceT) -> None:
        """Note that the instance has no credit now, or is gone."""
        self._instances.pop(instance, None)

    def next_turn(self) -> Turn[LaneT, InstanceT] | None:
        """Return whose turn it is and put both at the end; None where nothing can be handed out."""
        if not self._lanes or not self._instances:
            return None
        lane, instance = next(iter(self._lanes)), next(iter(self._instances))
        self._lanes.move_to_end(lane)
        self._instances.move_to_end(instance)
        return Turn(lane, instance)
