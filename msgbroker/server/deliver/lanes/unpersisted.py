"""Lanes that may have something to persist: whoever changes a lane adds it, and the checkpointer takes them all."""

from __future__ import annotations

import asyncio

from msgbroker.server.deliver.lanes.owned_lane import OwnedLane


class UnpersistedLanes:
    """The lanes that changed since they were last taken. Each is in it once, however often it changed."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        """Set when a lane has come."""
        self._lanes: set[OwnedLane] = set()

    def add(self, owned: OwnedLane) -> None:
        """Note that a lane may have something to persist."""
        self._lanes.add(owned)
        self.wake.set()

    def discard(self, owned: OwnedLane) -> None:
        """Forget a lane that is not served here any more: what it has is not this broker's to persist."""
        self._lanes.discard(owned)

    def take(self) -> set[OwnedLane]:
        """Return all of them; they are not in it any more."""
        taken, self._lanes = self._lanes, set()
        return taken
