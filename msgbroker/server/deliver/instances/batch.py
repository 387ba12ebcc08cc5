"""Messages of one lane on their way to one instance, from the hand-out until gRPC has taken them over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgbroker.engine.lane.config import Again, Handed, Handout
from msgbroker.server.log import encoding
from msgbroker.server.log.message import WIRE_OVERHEAD_BYTES, LogMessage, Wire


class Lease(Protocol):
    """What a lane is held by."""

    lease_until: float
    """By `clock.now`. It may be moved on; once it has passed, the lane is given up."""


@dataclass(frozen=True, slots=True)
class Stress:
    """What permitted the stress messages of a hand-out, and the hand-out: they may have to be looked at again."""

    permitted_by: Callable[[LogMessage], bool]
    handout: Handout[LogMessage]


@dataclass(slots=True, eq=False)
class Batch:
    """Messages of one lane on their way to one instance, encoded. Never changed: frozen, it would cost three times."""

    queue_id: int
    epoch: int
    wires: Sequence[Wire]
    """In the order of the queue."""
    size_bytes: int
    lease: Lease
    deadline: float
    """When the lane takes back what was not answered."""
    handed: Handed
    stress: Stress | None = None
    """Where it has stress messages."""
    is_suspect: bool = False
    """One of it may have ended an instance that went away without a word."""

    @property
    def held_bytes(self) -> int:
        """What it costs in memory while it waits."""
        return self.size_bytes + len(self.wires) * WIRE_OVERHEAD_BYTES

    def without_wires(self) -> Batch:
        """Return what is kept of it while it is written: which messages they are."""
        queue_id, epoch, lease, deadline = self.queue_id, self.epoch, self.lease, self.deadline
        return Batch(queue_id, epoch, (), 0, lease, deadline, self.handed, self.stress, self.is_suspect)


def wires_of(fresh: list[LogMessage], again: list[Again[LogMessage]]) -> tuple[list[Wire], int]:
    """Return the encoded deliveries of a hand-out and their size: what comes again first, with its attempt."""
    if not again:
        return [message.wire for message in fresh], sum([message.wire_bytes for message in fresh])
    wires = [
        encoding.with_attempt(each.message.wire, each.attempt) if each.attempt > 1 else each.message.wire
        for each in again
    ]
    wires += [message.wire for message in fresh]
    return wires, sum(len(piece) for pieces in wires for piece in pieces)
