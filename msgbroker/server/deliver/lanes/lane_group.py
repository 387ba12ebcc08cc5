"""The group that a lane is of, as those see it who work on its lanes: they tell it what happened, and it decides."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from confdb.routes import GroupRoute
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane


class LaneGroup(Protocol):
    """A group, with its lanes here by queue_id. Whoever works on one of them tells the group what happened to it."""

    route: GroupRoute
    lanes: dict[int, OwnedLane]

    def lane_held(self, queue_id: int, epoch: int) -> OwnedLane | None:
        """Return the lane here of which an instance holds something, as it names it; its epoch may have passed."""
        ...

    def touched(self, owned: OwnedLane) -> None:
        """Hear that the lane may have something to persist."""
        ...

    def activate(self, owned: OwnedLane) -> None:
        """Hear that the lane may have something to hand out, or to read: it wants a turn."""
        ...

    def activate_first(self, owned: OwnedLane) -> None:
        """Hear that the lane's block was read, and waits in the cache: it wants a turn before all others."""
        ...

    def trusted(self, owned: OwnedLane) -> AbstractContextManager[None]:
        """Give the lane up if what is done inside fails."""
        ...

    def lane_failed(self, owned: OwnedLane, error: Exception) -> None:
        """Hear that the lane's state in memory may be anything: it is given up."""
        ...
