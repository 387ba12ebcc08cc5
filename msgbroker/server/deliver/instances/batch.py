"""Messages of one lane on their way to one instance, from the hand-out until gRPC has taken them over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Protocol

from msgbroker.engine.lane.config import Again, Handed, Handout
from msgbroker.server.log import encoding
from msgbroker.server.log.message import WIRE_OVERHEAD_BYTES, LogMessage, Wire


class Lease(Protocol):
    """What this broker holds a lane by."""

    lease_until: float
    """When it passes, by `clock.now`. It is moved on again and again; once it has passed, the lane is given up."""


@dataclass(frozen=True, slots=True)
class Stress:
    """What permitted the stress messages of a hand-out, and the hand-out: they may have to be looked at again."""

    permitted_by: Callable[[LogMessage], bool]
    handout: Handout[LogMessage]


@dataclass(slots=True, eq=False)
class Batch:
    """Messages of one lane for one instance, encoded. Nobody changes it; to make it frozen would cost three times."""

    queue_id: int
    epoch: int
    wires: Sequence[Wire]
    """The encoded deliveries, in the order of the queue."""
    size_bytes: int
    _: KW_ONLY
    lease: Lease
    deadline: float
    """The time at which the lane takes back what was not answered."""
    handed: Handed
    stress: Stress | None = None
    """What permitted its stress messages; None where it has none."""
    is_suspect: bool = False
    """Whether one of its messages may have ended an instance that went away without a word."""

    @property
    def held_bytes(self) -> int:
        """What it costs in memory while it waits."""
        return self.size_bytes + len(self.wires) * WIRE_OVERHEAD_BYTES

    def without_wires(self) -> Batch:
        """Return what is kept of it while it is written: which messages they are."""
        return Batch(
            self.queue_id,
            self.epoch,
            (),
            0,
            lease=self.lease,
            deadline=self.deadline,
            handed=self.handed,
            stress=self.stress,
            is_suspect=self.is_suspect,
        )


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
