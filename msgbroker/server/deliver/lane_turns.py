"""In which order the lanes of a group have their turns, and its instances."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from msgbroker.server.deliver.instances.instance import Instance, InstanceRoom
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane

LOOKS_MAX: Final = 1_000
"""So many instances without room are looked at in one go, which takes a millisecond."""


class LaneTurns:
    """The lanes that may have something to hand out: those whose blocks were just read come before the others."""

    __slots__ = ("_active", "_first")

    def __init__(self) -> None:
        # Both by queue_id.
        self._active: OrderedDict[int, OwnedLane] = OrderedDict()
        self._first: OrderedDict[int, OwnedLane] = OrderedDict()

    def __len__(self) -> int:
        return len(self._first) + len(self._active)

    def __iter__(self) -> Iterator[OwnedLane]:
        return itertools.chain(self._first.values(), self._active.values())

    def add(self, owned: OwnedLane) -> None:
        """Let a lane have a turn: behind all that wait for theirs, if it does not wait yet."""
        queue_id = owned.lane.key.queue_id
        if queue_id not in self._first:
            self._active.setdefault(queue_id, owned)

    def add_first(self, owned: OwnedLane) -> None:
        """Let a lane have its turn before all others but those of which the same was said."""
        queue_id = owned.lane.key.queue_id
        self._active.pop(queue_id, None)
        self._first[queue_id] = owned

    def put_back(self, owned: OwnedLane) -> None:
        """Let a lane that had its turn have another one, behind the others."""
        self._active[owned.lane.key.queue_id] = owned

    def take(self) -> OwnedLane:
        """Return the lane whose turn it is; it waits no longer. Raises KeyError where none waits."""
        return (self._first or self._active).popitem(last=False)[1]

    def discard(self, queue_id: int) -> None:
        """Give a lane no turns any more."""
        self._active.pop(queue_id, None)
        self._first.pop(queue_id, None)


class InstanceTurns:
    """The instances that may have room: they take turns at what the lanes hand out.

    One that is found to have none gets no turns until it says that it may have some, so that thousands of them that
    have all they want cost nothing.
    """

    __slots__ = ("_line",)

    def __init__(self) -> None:
        self._line: OrderedDict[str, Instance] = OrderedDict()

    def __len__(self) -> int:
        return len(self._line)

    def adder_of(self, instance: Instance) -> Callable[[], object]:
        """Return what gives *instance* turns when it is called: with each change of its room, so it costs little."""
        return partial(self._line.setdefault, instance.name, instance)

    def discard(self, instance: Instance) -> None:
        """Give an instance no turns any more."""
        self._line.pop(instance.name, None)

    def next(self) -> tuple[Instance, InstanceRoom] | None:
        """Return the instance whose turn it is, with its room; its next turn comes behind the others'."""
        found = self.first()
        if found is not None:
            self._line.move_to_end(found[0].name)
        return found

    def first(self) -> tuple[Instance, InstanceRoom] | None:
        """Return the first instance in turn that has room, and its room. Those that have none get no further turns."""
        line = self._line
        for _ in range(min(len(line), LOOKS_MAX)):
            name, instance = next(iter(line.items()))
            room = instance.room
            if room.messages > 0:
                return instance, room
            del line[name]
        return None
