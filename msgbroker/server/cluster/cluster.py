"""This broker among its equals, as its owner has to do with it: joining, draining and leaving."""

from __future__ import annotations

from dataclasses import dataclass

from msgbroker.server.cluster.cut_off import CutOff
from msgbroker.server.cluster.heartbeats import Heartbeats
from msgbroker.server.cluster.ownership import LaneOwnership


@dataclass(frozen=True, slots=True)
class Cluster:
    """What keeps a broker's place among the others. Other parts of the broker are given just the one that they need."""

    heartbeats: Heartbeats
    ownership: LaneOwnership
    cut_off: CutOff

    def drain(self) -> None:
        """Let the lanes go to other brokers, and tell them to claim what is free."""
        self.heartbeats.drain()
        self.ownership.drain()

    def look_around(self) -> None:
        """Let both loops have their next round now: something has changed that others, or the lanes, depend on."""
        self.heartbeats.wake.set()
        self.ownership.wake.set()
