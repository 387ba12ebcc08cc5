"""Where one message of a lane is: for people who ask, and for nobody who decides.

It costs a few searches by halves, however much the lane has in flight.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgbroker.contract.whereabouts import Stand
from msgbroker.engine.lane.begun import Begun
from msgbroker.engine.lane.redeliveries import Redelivery, Stage
from msgbroker.engine.lane.state import LaneState
from msgbroker.engine.messages import MessageT

_STANDS: Final = {
    Stage.WAITING: Stand.WAITING,
    Stage.DUE: Stand.READY,
    Stage.FETCHING: Stand.READY,
    Stage.READY: Stand.READY,
    Stage.IN_FLIGHT: Stand.IN_FLIGHT,
    Stage.SHELVED: Stand.SHELVED,
}


class Whereabouts(NamedTuple):
    """Where a message is."""

    stand: Stand
    attempt: int = 0
    """The attempt that is under way, or comes next; 0 where there is none, or nobody knows."""
    due_at: float | None = None
    """WAITING: when it comes again."""
    flight: InFlight | None = None
    """IN_FLIGHT: with whom."""


class InFlight(NamedTuple):
    """With whom a message is in flight, and until when."""

    instance_id: str
    """The instance, as it was named to `Lane.take`."""
    handed_at: float
    deadline: float
    """When it is taken back unless it is answered or extended."""
    has_begun: bool
    """Whether the instance has said so; one that never says what it begins has not."""


def find(state: LaneState[MessageT], queue_offset: int) -> Whereabouts:
    """Return where the message at *queue_offset* is."""
    record = state.again.by_offset.get(queue_offset)
    if record is not None:
        # Before what is settled: for the cursor, a message that has a row is.
        return _of_record(record)
    if queue_offset in state.settled:
        return Whereabouts(Stand.SETTLED)
    flight = state.flights.find(queue_offset)
    if flight is not None:
        with_whom = InFlight(flight.instance_id, flight.handed_at, flight.deadline, flight.begun is Begun.YES)
        return Whereabouts(Stand.IN_FLIGHT, 1, flight=with_whom)
    if queue_offset >= state.next_offset or state.is_stopped:
        # Of a stopped lane the bodies are gone: its next owner reads them.
        return Whereabouts(Stand.UNREAD)
    # What was read is settled, has a record, is in a flight, or is this.
    return Whereabouts(Stand.READY, 1)


def _of_record(record: Redelivery) -> Whereabouts:
    stand = _STANDS[record.stage]
    due_at = record.due_at if stand is Stand.WAITING else None
    flight: InFlight | None = None
    if stand is Stand.IN_FLIGHT:
        has_begun = record.begun is Begun.YES
        flight = InFlight(record.instance_id, record.handed_at, record.deadline, has_begun)
    return Whereabouts(stand, record.attempt, due_at, flight)
