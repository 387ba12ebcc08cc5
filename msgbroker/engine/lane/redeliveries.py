"""Messages that were handed out before and come again, one record each.

All of this is the path of failures: a record per message, where first hand-outs have one per batch.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic

from msgbroker.engine.lane.begun import Begun, Late
from msgbroker.engine.lane.extension import Extension
from msgbroker.engine.messages import MessageT
from msgbroker.engine.tally import UNSEEN, Counted


class Stage(Enum):
    """Where a message that comes again is on its way."""

    WAITING = auto()
    """Its time has not come."""
    DUE = auto()
    """Its time has come: the driver is to fetch its body."""
    FETCHING = auto()
    """The driver was asked for its body."""
    READY = auto()
    """The message's body is here, and it waits for an instance."""
    IN_FLIGHT = auto()
    """It is with an instance."""
    SHELVED = auto()
    """Only paused subscriptions want it: it waits until one of them goes on."""


@dataclass(slots=True)
class Redelivery:
    """One message that comes again, or is in flight on its way to that."""

    queue_offset: int
    stored_at_us: int
    ordering_key: str
    attempt: int
    """The attempt that comes next, or is under way."""
    due_at: float
    last_error: str = ""
    stage: Stage = Stage.WAITING
    is_moved: bool = False
    """The cursor may pass it: its redelivery row is stored or is part of the next checkpoint. Never unset."""
    instance_id: str = ""
    """The instance that it is with, or was last, and (`deadline`) until when that may answer."""
    handed_at: float = math.nan
    """When that instance was handed it."""
    deadline: float = math.inf
    begun: Begun = Begun.NO
    """Whether it was begun there. A hand-out sets it anew: what comes again is not begun any more."""
    place: int = 0
    """How many messages that instance was handed before this one."""
    keep_until: float = math.inf
    """Until when it may be extended again, as with a flight. Infinite where it never was."""
    is_suspect: bool = False
    """It was with an instance that went away without a word, and nobody has handled it since."""
    shelved_by: str = ""
    """The paused subscriptions that want it, as the driver names them; empty: it is not shelved."""
    counted_among: Counted = UNSEEN
    """What is counted of it and of those that it was handed out with, since it was."""
    counted_at: int = 0
    """Which of them it is."""

    @property
    def counted(self) -> Counted:
        """What is counted of it: found out only when it is asked for, which of thousands that are parked is seldom."""
        return self.counted_among.part(self.counted_at, self.counted_at + 1)


class Redeliveries(Generic[MessageT]):
    """All of a lane's messages that come again, by offset."""

    def __init__(self) -> None:
        self.by_offset: dict[int, Redelivery] = {}
        self.ready: deque[tuple[Redelivery, MessageT]] = deque()
        self.in_flight: dict[int, Redelivery] = {}
        self.shelved: dict[int, Redelivery] = {}
        self.moved_count = 0
        self._waiting: list[tuple[float, int]] = []
        self._due: deque[Redelivery] = deque()
        self._next_deadline = math.inf

    def add(self, record: Redelivery) -> None:
        """Take in a new record; say with another call what becomes of it."""
        self.by_offset[record.queue_offset] = record
        self.moved_count += record.is_moved

    def remove(self, record: Redelivery) -> None:
        """Forget a record that is in no queue: it is settled."""
        del self.by_offset[record.queue_offset]
        self.moved_count -= record.is_moved

    def mark_moved(self, record: Redelivery) -> None:
        """Note that the cursor may pass it from now on."""
        self.moved_count += 1
        record.is_moved = True

    @property
    def unmoved_count(self) -> int:
        """How many records hold the cursor back, as they have no row."""
        return len(self.by_offset) - self.moved_count

    @property
    def due_count(self) -> int:
        """Records whose bodies the driver may fetch now."""
        return len(self._due)

    def wait(self, record: Redelivery) -> None:
        """Let it come again at its `due_at`."""
        record.stage = Stage.WAITING
        heapq.heappush(self._waiting, (record.due_at, record.queue_offset))

    def make_due(self, record: Redelivery) -> None:
        """Let the record's message come again at once."""
        record.stage = Stage.DUE
        self._due.append(record)

    def shelve(self, record: Redelivery) -> None:
        """Let it wait until it is taken off the shelf."""
        record.stage = Stage.SHELVED
        record.due_at = math.inf
        self.shelved[record.queue_offset] = record

    def take_off_shelf(self, record: Redelivery) -> None:
        """Let it wait there no longer; say with another call what becomes of it."""
        del self.shelved[record.queue_offset]
        record.shelved_by = ""

    def promote(self, now: float) -> None:
        """Make every record due whose time has come."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= now:
            self.make_due(self.by_offset[heapq.heappop(waiting)[1]])

    def start_fetch(self, limit: int) -> list[Redelivery]:
        """Return up to *limit* due records, which count as being fetched from now on."""
        fetched = [self._due.popleft() for _ in range(min(limit, len(self._due)))]
        for record in fetched:
            record.stage = Stage.FETCHING
        return fetched

    def fetching(self, offsets: Iterable[int]) -> list[Redelivery]:
        """Return those of *offsets* that are being fetched; an answer to anything else is late and ignored."""
        found = (self.by_offset.get(offset) for offset in offsets)
        return [record for record in found if record is not None and record.stage is Stage.FETCHING]

    def make_ready(self, record: Redelivery, message: MessageT) -> None:
        """Keep the body that came for it until an instance takes it."""
        record.stage = Stage.READY
        self.ready.append((record, message))

    def drop_ready(self) -> None:
        """Let go of the bodies that are here: they are fetched again when they are wanted."""
        for record, _ in self.ready:
            self.make_due(record)
        self.ready.clear()

    def hand_out(
        self,
        record: Redelivery,
        instance_id: str,
        *,
        handed_at: float,
        deadline: float,
        begun: Begun,
        place: int,
        keep_until: float = math.inf,
    ) -> None:
        """Note that a record's message is in flight, with whom, since when and until when."""
        record.stage = Stage.IN_FLIGHT
        record.instance_id = instance_id
        record.handed_at = handed_at
        record.deadline = deadline
        record.begun = begun
        record.place = place
        record.keep_until = keep_until
        self.in_flight[record.queue_offset] = record
        self._next_deadline = min(self._next_deadline, deadline)

    def begin(self, instance_id: str, attempt: int, first: int, end: int) -> None:
        """Note that *instance_id* has begun what it has of that attempt, from *first* to below *end*."""
        for record in self._find(instance_id, attempt, first, end):
            record.begun = Begun.YES

    def extend(self, instance_id: str, attempt: int, first: int, end: int, extension: Extension) -> int:
        """Extend what *instance_id* has of that attempt, from *first* to below *end*; return how many that is."""
        found = self._find(instance_id, attempt, first, end)
        for record in found:
            record.begun = Begun.YES
            record.deadline, record.keep_until = extension.applied_to(record.deadline, record.keep_until)
        return len(found)

    def of_instance(self, instance_id: str) -> list[Redelivery]:
        """Return what *instance_id* has in flight."""
        return [record for record in self.in_flight.values() if record.instance_id == instance_id]

    def late_and_not_begun(self, now: float) -> set[str]:
        """Return the instances that have not answered in time for what they have not said to have begun."""
        if now < self._next_deadline:
            return set()
        flying = self.in_flight.values()
        return {record.instance_id for record in flying if record.deadline <= now and record.begun is Begun.NO}

    def late_and_begun(self, now: float) -> list[Late]:
        """Return what instances have begun and not answered in time."""
        if now < self._next_deadline:
            return []
        late = [r for r in self.in_flight.values() if r.deadline <= now and r.begun is Begun.YES]
        return [Late(record.instance_id, record.queue_offset, record.attempt) for record in late]

    @property
    def has_extended(self) -> bool:
        """Whether any of what is in flight was extended."""
        return any(record.keep_until < math.inf for record in self.in_flight.values())

    def cut(self, instance_id: str, attempt: int, first: int, end: int) -> list[Redelivery]:
        """Take out of flight what *instance_id* has of that attempt, from *first* to below *end*."""
        return self._land(self._find(instance_id, attempt, first, end))

    def _find(self, instance_id: str, attempt: int, first: int, end: int) -> list[Redelivery]:
        flying = self.in_flight
        # The range comes from outside and may be of any length: never walk further than there are records.
        offsets = range(first, end) if end - first < len(flying) else [o for o in flying if first <= o < end]
        found = [flying[offset] for offset in offsets if offset in flying]
        return [r for r in found if r.instance_id == instance_id and r.attempt == attempt]

    def cut_each(self, instance_id: str, attempts: Iterable[tuple[int, int]]) -> list[Redelivery]:
        """Take out of flight just these (offset, attempt), as far as *instance_id* has them."""
        found = [(self.in_flight.get(offset), attempt) for offset, attempt in attempts]
        return self._land([r for r, n in found if r is not None and r.instance_id == instance_id and r.attempt == n])

    def cut_instance(self, instance_id: str) -> list[Redelivery]:
        """Take out of flight all that *instance_id* has."""
        return self._land(self.of_instance(instance_id))

    def cut_expired(self, now: float) -> list[Redelivery]:
        """Take out of flight whatever's deadline has passed."""
        if now < self._next_deadline:
            return []
        expired = self._land([record for record in self.in_flight.values() if record.deadline <= now])
        self._next_deadline = min((record.deadline for record in self.in_flight.values()), default=math.inf)
        return expired

    def _land(self, records: list[Redelivery]) -> list[Redelivery]:
        for record in records:
            del self.in_flight[record.queue_offset]
        return records

    @property
    def next_deadline(self) -> float:
        """A time before which no deadline passes; infinite where nothing is in flight."""
        return self._next_deadline if self.in_flight else math.inf

    @property
    def next_due(self) -> float:
        """When the next waiting record becomes due; infinite where none waits."""
        return self._waiting[0][0] if self._waiting else math.inf
