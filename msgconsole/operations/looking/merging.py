"""Several queues looked through as one log, in the order of time: which stretch is read next, and what is found so far.

Pure: the driver reads the stretches of `next_spans` and hands what it read to `take_in`, until there are none.
However many queues there are and however much they hold, a bounded number of messages is looked at, and in memory is
not more than was asked for of each queue. Where it ends early, `position` is the place up to which everything was
looked at in every queue: who goes on behind it misses nothing, and meets nothing twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from msgdb.log.found import FoundMessage, Position
from msgdb.looking.spans import Span
from msgdb.looking.stretches import ReadStretch

SCANNED_MAX: Final = 100_000
"""So many messages are looked at for one answer."""
_STRETCH_FIRST: Final = 500
_STRETCH_MAX: Final = 20_000
STRETCH_MIN: Final = 50
"""So many messages of a queue are read at once at least, however many queues there are."""
_GROWTH: Final = 4


@dataclass(slots=True)
class _Queue:
    """What is known of one queue."""

    first: int
    end: int
    """What was not looked at yet: offsets from `first` to below `end`."""
    through: Position | None = None
    """The last place that was looked at; None: nothing yet."""
    found: deque[FoundMessage] = field(default_factory=deque)

    @property
    def is_read(self) -> bool:
        """Whether all of it was looked at."""
        return self.first >= self.end


class LogMerge:
    """The messages of several queues that are wanted, merged in the order of their places, or in the reverse order."""

    def __init__(
        self,
        spans: Sequence[Span],
        *,
        wanted: int,
        newest_first: bool = False,
        scanned_max: int = SCANNED_MAX,
        stretch_min: int = STRETCH_MIN,
    ) -> None:
        self._queues = {span.queue_id: _Queue(span.first, span.end) for span in spans}
        self._wanted = wanted
        self._newest_first = newest_first
        self._scanned_max = scanned_max
        # All queues are read once before anything is known to come first.
        self._stretch_max = min(_STRETCH_MAX, max(stretch_min, scanned_max // (2 * len(spans) or 1)))
        self._stretch = min(_STRETCH_FIRST, self._stretch_max)
        self.looked_at = 0
        self.found: list[FoundMessage] = []

    @property
    def missing(self) -> int:
        """How many are still wanted: more of one queue need not be read."""
        return self._wanted - len(self.found)

    @property
    def is_end(self) -> bool:
        """Whether everything was looked at, and all that is wanted of it is found."""
        return all(queue.is_read and not queue.found for queue in self._queues.values())

    @property
    def position(self) -> Position | None:
        """The place up to which everything was looked at and what is wanted was found; None: no place is known."""
        if not self.missing:
            return self.found[-1].position
        waited_for = [queue.through for queue in self._blocking()]
        return None if not waited_for or None in waited_for else self._foremost([each for each in waited_for if each])

    def stop(self) -> None:
        """Look at no more than was looked at by now: it has taken long enough."""
        self._scanned_max = 0

    def next_spans(self) -> list[Span]:
        """Return what is to be read next; nothing: there is enough, or enough was looked at, or there is no more."""
        blocking = self._blocking()
        if not self.missing or not blocking or self.looked_at >= self._scanned_max:
            return []
        return [self._next_of(queue_id) for queue_id in self._lagging(blocking)]

    def take_in(self, stretches: Sequence[ReadStretch], *, may_grow: bool = True) -> None:
        """Take what was read, of each stretch as many as were `missing` at most. *may_grow*: it was read quickly."""
        missing = self.missing
        for stretch in stretches:
            self._take_one(stretch, missing)
        if may_grow:
            self._stretch = min(self._stretch * _GROWTH, self._stretch_max)
        self._emit()

    def _take_one(self, stretch: ReadStretch, missing: int) -> None:
        span, queue = stretch.span, self._queues[stretch.span.queue_id]
        queue.found.extend(stretch.found)
        if len(stretch.found) == missing:
            last = stretch.found[-1]
            queue.through, through = last.position, last.queue_offset
        else:
            through = span.first if self._newest_first else span.end - 1
            # What is gone was the oldest: before all else, if it is read so, or the rest of the queue is gone with it.
            queue.through = Position(stretch.edge_stored_at_us or 0, span.queue_id, through)
        if self._newest_first:
            self.looked_at += queue.end - through
            queue.end = queue.first if stretch.edge_stored_at_us is None else through
        else:
            self.looked_at += through + 1 - queue.first
            queue.first = through + 1

    def _emit(self) -> None:
        """Move on what nothing that was not looked at can come before."""
        while self.missing:
            first = self._first_found()
            if first is None or self._blocking(first.position):
                return
            self.found.append(self._queues[first.queue_id].found.popleft())

    def _blocking(self, before: Position | None = None) -> list[_Queue]:
        """Return the queues of which something may come next, or before that place, and is not known."""
        if before is None and (first := self._first_found()) is not None:
            before = first.position
        unknown = (queue for queue in self._queues.values() if not queue.found and not queue.is_read)
        return [queue for queue in unknown if before is None or self._may_come_before(queue, before)]

    def _may_come_before(self, queue: _Queue, place: Position) -> bool:
        if queue.through is None:
            return True
        return queue.through > place if self._newest_first else queue.through < place

    def _lagging(self, blocking: list[_Queue]) -> list[int]:
        """Return the queues to read: all but the one that is ahead of the others, so that they keep in step."""
        if len(blocking) > 1 and all(queue.through is not None for queue in blocking):
            places = [queue.through for queue in blocking if queue.through is not None]
            ahead = min(places) if self._newest_first else max(places)
            blocking = [queue for queue in blocking if queue.through != ahead]
        read = {id(queue) for queue in blocking}
        return [queue_id for queue_id, queue in self._queues.items() if id(queue) in read]

    def _next_of(self, queue_id: int) -> Span:
        queue = self._queues[queue_id]
        if self._newest_first:
            return Span(queue_id, max(queue.first, queue.end - self._stretch), queue.end)
        return Span(queue_id, queue.first, min(queue.end, queue.first + self._stretch))

    def _first_found(self) -> FoundMessage | None:
        heads = [queue.found[0] for queue in self._queues.values() if queue.found]
        if not heads:
            return None
        place = self._foremost([head.position for head in heads])
        return next(head for head in heads if head.position == place)

    def _foremost(self, places: Sequence[Position]) -> Position:
        return max(places) if self._newest_first else min(places)
