"""Where messages of a lane are: for people who ask, and for nobody who decides.

Where one is costs a few searches by halves, however much the lane has in flight. The oldest of what is unsettled cost
one look at each flight and at each record of what comes again, and something for each that is told.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple

from msgbroker.contract.whereabouts import Stand
from msgbroker.engine.lane.begun import Begun
from msgbroker.engine.lane.flights import Flight
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
_UNSETTLED: Final = frozenset(_STANDS.values())


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


class Unsettled(NamedTuple):
    """A message that a lane has read and not settled."""

    queue_offset: int
    stored_at_us: int
    where: Whereabouts
    """What is due again and has a row is WAITING here until it is handed out."""


class WantedUnsettled(NamedTuple):
    """Which of the unsettled are asked for."""

    stands: Collection[Stand]
    instances: Collection[str] | None = None
    """Only what is in flight with one of these, as they were named to `Lane.take`. None: all."""


_OFFSET: Final = attrgetter("queue_offset")


def find_oldest(state: LaneState[MessageT], wanted: WantedUnsettled, count_max: int) -> list[Unsettled]:
    """Return the first *count_max*, by offset, of what is unsettled and *wanted*: within a queue that is the oldest."""
    again = sorted(_again_offsets(state, wanted))[:count_max]
    records = (state.again.by_offset[offset] for offset in again)
    found = heapq.merge(_first_handed(state, wanted, count_max), map(_unsettled_record, records), key=_OFFSET)
    return list(islice(found, count_max))


def _again_offsets(state: LaneState[MessageT], wanted: WantedUnsettled) -> list[int]:
    """Return which messages that come again are wanted."""
    stands, again = wanted.stands, state.again
    if wanted.instances is not None:
        flying = again.in_flight.values() if Stand.IN_FLIGHT in stands else ()
        return [record.queue_offset for record in flying if record.instance_id in wanted.instances]
    if _UNSETTLED.issubset(stands):
        return list(again.by_offset)
    return [offset for offset, record in again.by_offset.items() if _stand_of(record) in stands]


def _first_handed(state: LaneState[MessageT], wanted: WantedUnsettled, count_max: int) -> Iterator[Unsettled]:
    """Give what is handed out for the first time, and then what is to be: that lies behind it."""
    if Stand.IN_FLIGHT in wanted.stands:
        flights = state.flights if wanted.instances is None else _with(state, wanted.instances)
        yield from (each for flight in flights for each in _unsettled_in(flight))
    if Stand.READY in wanted.stands and wanted.instances is None:
        ready = Whereabouts(Stand.READY, 1)
        for message in islice(state.ready, count_max):
            yield Unsettled(message.queue_offset, message.stored_at_us, ready)


def _with(state: LaneState[MessageT], instances: Collection[str]) -> Iterator[Flight]:
    return (flight for flight in state.flights if flight.instance_id in instances)


def _unsettled_in(flight: Flight) -> Iterator[Unsettled]:
    where = Whereabouts(Stand.IN_FLIGHT, 1, flight=_with_whom(flight))
    for offset, stored_at_us in zip(flight.offsets, flight.stored_at_us, strict=True):
        yield Unsettled(offset, stored_at_us, where)


def _unsettled_record(record: Redelivery) -> Unsettled:
    where = _of_record(record)
    stand = _stand_of(record)
    if stand is not where.stand:
        where = where._replace(stand=stand, due_at=record.due_at)
    return Unsettled(record.queue_offset, record.stored_at_us, where)


def _stand_of(record: Redelivery) -> Stand:
    """Return where a message is by its record: while it has a row, and nobody has it, it waits."""
    stand = _STANDS[record.stage]
    return Stand.WAITING if stand is Stand.READY and record.is_moved else stand


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
        return Whereabouts(Stand.IN_FLIGHT, 1, flight=_with_whom(flight))
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
        flight = _with_whom(record)
    return Whereabouts(stand, record.attempt, due_at, flight)


def _with_whom(handed: Flight | Redelivery) -> InFlight:
    return InFlight(handed.instance_id, handed.handed_at, handed.deadline, handed.begun is Begun.YES)
