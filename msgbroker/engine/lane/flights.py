"""Messages handed out for the first time and not answered yet, as runs of offsets.

A batch that is handed out and acknowledged as a whole costs one entry, however many messages it has. No message is
kept here: only what names it in the store.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence

from msgbroker.engine.lane.begun import Begun, Late
from msgbroker.engine.lane.extension import Extension
from msgbroker.engine.tally import UNSEEN, Counted


class Flight:
    """Messages one instance was handed at once and has not answered, in the order of the queue.

    Every offset between its first and last that is not its own is settled or has a redelivery: whoever settles a
    whole flight may settle that whole range.
    """

    __slots__ = (
        "begun",
        "counted",
        "deadline",
        "end",
        "first",
        "handed_at",
        "instance_id",
        "keep_until",
        "offsets",
        "ordering_keys",
        "place",
        "stored_at_us",
    )

    def __init__(
        self,
        instance_id: str,
        offsets: Sequence[int],
        stored_at_us: list[int],
        ordering_keys: list[str],
        *,
        handed_at: float,
        deadline: float,
        begun: Begun,
        place: int,
        keep_until: float = math.inf,
        counted: Counted = UNSEEN,
    ) -> None:
        self.instance_id = instance_id
        self.handed_at = handed_at
        self.deadline = deadline
        self.offsets = offsets
        self.stored_at_us = stored_at_us
        self.ordering_keys = ordering_keys
        self.begun = begun
        self.place = place
        """How many messages its instance was handed before these."""
        self.keep_until = keep_until
        """Until when it may be extended again. Infinite where it never was: its first extension sets it."""
        self.counted = counted
        self.first = offsets[0]
        self.end = offsets[-1] + 1

    def part(self, low: int, high: int) -> Flight:
        """Return its messages number *low* to below *high* as a flight of their own."""
        return Flight(
            self.instance_id,
            self.offsets[low:high],
            self.stored_at_us[low:high],
            self.ordering_keys[low:high],
            handed_at=self.handed_at,
            deadline=self.deadline,
            begun=self.begun,
            place=self.place + low,
            keep_until=self.keep_until,
            counted=self.counted.part(low, high),
        )


class Flights:
    """All flights of a lane, ascending; they never overlap, because first hand-outs follow the queue."""

    __slots__ = ("_flights", "_next_deadline", "_starts", "count")

    def __init__(self) -> None:
        self._flights: list[Flight] = []
        self._starts: list[int] = []
        # Never above the earliest deadline. It may be below it, when the flight it belonged to was answered: then one
        # look at all flights is wasted, which is cheaper than keeping deadlines in order for every batch.
        self._next_deadline = math.inf
        self.count = 0
        """How many messages are in flight."""

    def add(self, flight: Flight) -> None:
        """Add a flight; its offsets are above those of every earlier one."""
        self._flights.append(flight)
        self._starts.append(flight.first)
        self._next_deadline = min(self._next_deadline, flight.deadline)
        self.count += len(flight.offsets)

    def __iter__(self) -> Iterator[Flight]:
        return iter(self._flights)

    @property
    def next_deadline(self) -> float:
        """A time before which no flight's deadline passes; infinite where there is none."""
        return self._next_deadline if self._flights else math.inf

    def find(self, queue_offset: int) -> Flight | None:
        """Return the flight that has the message at *queue_offset*."""
        index = bisect_right(self._starts, queue_offset) - 1
        if index < 0:
            return None
        flight = self._flights[index]
        at = bisect_left(flight.offsets, queue_offset)
        return flight if at < len(flight.offsets) and flight.offsets[at] == queue_offset else None

    def of_instance(self, instance_id: str) -> list[Flight]:
        """Return the flights of *instance_id*."""
        return [flight for flight in self._flights if flight.instance_id == instance_id]

    def begin(self, instance_id: str, first: int, end: int) -> None:
        """Note that *instance_id* has begun what it has in flight from *first* to below *end*."""
        self._part(first, end, lambda flight: flight.instance_id == instance_id and flight.begun is not Begun.YES)

    def extend(self, instance_id: str, first: int, end: int, extension: Extension) -> int:
        """Extend what *instance_id* has in flight from *first* to below *end*: it has begun it. Return how many."""
        extended = self._part(first, end, lambda flight: flight.instance_id == instance_id)
        for flight in extended:
            # Where the earliest deadline was one of these, it is below it from now on, until somebody looks.
            flight.deadline, flight.keep_until = extension.applied_to(flight.deadline, flight.keep_until)
        return sum(len(flight.offsets) for flight in extended)

    def _part(self, first: int, end: int, is_meant: Callable[[Flight], bool]) -> list[Flight]:
        """Divide flights so that what is meant from *first* to below *end* is apart, and begun; return that."""
        low = max(bisect_right(self._starts, first) - 1, 0)
        high = bisect_left(self._starts, end)
        parts: list[Flight] = []
        meant: list[Flight] = []
        for flight in self._flights[low:high]:
            if not is_meant(flight) or flight.end <= first:
                parts.append(flight)
                continue
            if first <= flight.first and flight.end <= end:
                flight.begun = Begun.YES
                meant.append(flight)
                parts.append(flight)
                continue
            inside: list[Flight] = []
            others: list[Flight] = []
            _split(flight, first, end, inside, others)
            for part in inside:
                part.begun = Begun.YES
            meant += inside
            parts += sorted([*inside, *others], key=lambda part: part.first)
        self._flights[low:high] = parts
        self._starts[low:high] = [part.first for part in parts]
        return meant

    def late_and_not_begun(self, now: float) -> set[str]:
        """Return the instances that have not answered in time for what they have not said to have begun."""
        if now < self._next_deadline:
            return set()
        return {flight.instance_id for flight in self._flights if flight.deadline <= now and flight.begun is Begun.NO}

    def late_and_begun(self, now: float) -> list[Late]:
        """Return what instances have begun and not answered in time."""
        if now < self._next_deadline:
            return []
        late = [flight for flight in self._flights if flight.deadline <= now and flight.begun is Begun.YES]
        return [Late(flight.instance_id, offset, 1) for flight in late for offset in flight.offsets]

    @property
    def has_extended(self) -> bool:
        """Whether the time of any flight was extended."""
        return any(flight.keep_until < math.inf for flight in self._flights)

    def cut(self, instance_id: str, first: int, end: int) -> list[Flight]:
        """Take out what *instance_id* has in flight from *first* to below *end*."""
        low = max(bisect_right(self._starts, first) - 1, 0)
        high = bisect_left(self._starts, end)
        return self._cut_between(low, high, first, end, lambda flight: flight.instance_id == instance_id)

    def cut_below(self, end: int) -> list[Flight]:
        """Take out what is in flight below *end*."""
        return self._cut_between(0, bisect_left(self._starts, end), 0, end, lambda _: True)

    def cut_instance(self, instance_id: str) -> list[Flight]:
        """Take out all that *instance_id* has in flight."""
        return self._cut_whole(lambda flight: flight.instance_id == instance_id)

    def cut_expired(self, now: float) -> list[Flight]:
        """Take out the flights whose deadline has passed."""
        if now < self._next_deadline:
            return []
        expired = self._cut_whole(lambda flight: flight.deadline <= now)
        self._next_deadline = min((flight.deadline for flight in self._flights), default=math.inf)
        return expired

    def _cut_between(
        self, low: int, high: int, first: int, end: int, is_meant: Callable[[Flight], bool]
    ) -> list[Flight]:
        cut: list[Flight] = []
        kept: list[Flight] = []
        for flight in self._flights[low:high]:
            if not is_meant(flight) or flight.end <= first:
                kept.append(flight)
            elif first <= flight.first and flight.end <= end:
                cut.append(flight)
            else:
                _split(flight, first, end, cut, kept)
        if cut:
            self._flights[low:high] = kept
            self._starts[low:high] = [flight.first for flight in kept]
            self.count -= sum(len(flight.offsets) for flight in cut)
        return cut

    def _cut_whole(self, is_meant: Callable[[Flight], bool]) -> list[Flight]:
        cut = [flight for flight in self._flights if is_meant(flight)]
        if cut:
            self._flights = [flight for flight in self._flights if not is_meant(flight)]
            self._starts = [flight.first for flight in self._flights]
            self.count -= sum(len(flight.offsets) for flight in cut)
        return cut


def _split(flight: Flight, first: int, end: int, cut: list[Flight], kept: list[Flight]) -> None:
    """Divide *flight*: its messages from *first* to below *end* go to *cut*, the others to *kept*."""
    low = bisect_left(flight.offsets, first)
    high = bisect_left(flight.offsets, end, low)
    if low > 0:
        kept.append(flight.part(0, low))
    if low < high:
        cut.append(flight.part(low, high))
    if high < len(flight.offsets):
        kept.append(flight.part(high, len(flight.offsets)))
