"""Lanes that wait for the helper process: groups take turns, and within a group its lanes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import NamedTuple, Protocol

from msgbroker.server.deliver.lanes.owned_lane import OwnedLane


class GivesTurns(Protocol):
    """Who gives a lane its turns: the group that it is of."""

    def activate(self, owned: OwnedLane) -> None:
        """Hear that more of the lane's messages can be decided: it wants a turn."""
        ...


class LaneInLine(NamedTuple):
    """A lane whose next messages are to be evaluated."""

    owned: OwnedLane
    group: GivesTurns
    """Told when something is known."""

    def activate(self) -> None:
        """Give the lane turns again."""
        self.group.activate(self.owned)


class LaneLine:
    """The line of those lanes. Each is in it once, so it is bounded by the lanes there are."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        """Set when a lane has come to the line."""
        self._groups: OrderedDict[int, OrderedDict[OwnedLane, LaneInLine]] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(lanes) for lanes in self._groups.values())

    def add(self, lane: LaneInLine) -> None:
        """Let a lane wait, if it does not yet."""
        self._groups.setdefault(lane.owned.lane.key.group_id, OrderedDict()).setdefault(lane.owned, lane)
        self.wake.set()

    def take(self) -> LaneInLine | None:
        """Return the next lane in turn that is still served here, and let it wait no longer."""
        while self._groups:
            group_id, lanes = self._groups.popitem(last=False)
            _, lane = lanes.popitem(last=False)
            if lanes:
                self._groups[group_id] = lanes
            if not lane.owned.lane.is_stopped:
                return lane
        return None
