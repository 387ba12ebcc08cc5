"""What was noted and waits to be written: so much and no more. What does not fit is counted, by why it was left out.

Noting costs a little memory and waits for nothing. Consecutive messages to which the same happens at the same moment
are one event. Failures are noted whatever the rate of their topic, so of each kind there are so many a second at most:
a storm of one kind does not hide the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from msgbroker.server import clock
from msgdb.trace.records import RANGE_MAX, TraceKind

EVENTS_MAX: Final = 10_000
"""So many events wait at most: some megabytes, and what one flush writes."""
FAILURES_PER_SECOND_MAX: Final = 100
"""So many events of each kind of failure are noted in a second."""
_SAME_MOMENT_SECONDS: Final = 0.001

BUFFER_FULL: Final = "more than is written at a time"
STORM: Final = "more failures of a kind than are noted in a second"
NOT_WRITTEN: Final = "the store did not take them"


@dataclass(slots=True)
class Noted:
    """What happened to some consecutive messages of a queue."""

    kind: TraceKind
    queue_id: int
    first: int
    last: int
    at: float
    """By `clock.now`."""
    stored_at_us: int = 0
    """By the database's clock, where that has said when."""
    group_id: int | None = None
    instance: str | None = None
    attempt: int | None = None
    handed_at: float | None = None
    """When what ended was handed out, by `clock.now`."""
    detail: str = ""

    @property
    def count(self) -> int:
        """Of how many messages it is."""
        return self.last - self.first + 1

    def joins(self, before: Noted) -> bool:
        """Return whether it is the same as *before*, of the next message."""
        return (
            self.first == before.last + 1
            and self.queue_id == before.queue_id
            and self.kind is before.kind
            and self.at - before.at < _SAME_MOMENT_SECONDS
            and self.last - before.first < RANGE_MAX
            and self._circumstances == before._circumstances
        )

    @property
    def _circumstances(self) -> tuple[object, ...]:
        return self.stored_at_us, self.group_id, self.instance, self.attempt, self.handed_at, self.detail


@dataclass(slots=True)
class OpenHandOut:
    """A hand-out that is traced, as long as some of it is with its instance."""

    noted: Noted
    open_count: int
    """How many of its messages are still there."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """How many events were left out, and why, since when."""

    counts: Counter[str]
    since: float


class TraceBuffer:
    """The events that wait to be written."""

    def __init__(
        self,
        events_max: int = EVENTS_MAX,
        failures_per_second_max: int = FAILURES_PER_SECOND_MAX,
        now: Callable[[], float] = clock.now,
    ) -> None:
        self._events_max = events_max
        self._failures_max = failures_per_second_max
        self.now = now
        self._noted: list[Noted] = []
        self._hand_outs: list[OpenHandOut] = []
        self._left_out: Counter[str] = Counter()
        self._left_out_since = 0.0
        self._second = 0
        self._noted_in_second: Counter[TraceKind] = Counter()
        """How many events there were in that second, of kinds that are bounded."""

    def __len__(self) -> int:
        """How many events wait, with a last one that says what was left out."""
        return len(self._noted) + len(self._hand_outs) + bool(self._left_out)

    def note(self, noted: Noted) -> None:
        """Keep what happened until it is written."""
        if self._noted and noted.joins(self._noted[-1]):
            self._noted[-1].last = noted.last
        elif self._has_room:
            self._noted.append(noted)
        else:
            self.leave_out(noted.count, BUFFER_FULL)

    def note_failure(self, noted: Noted) -> None:
        """Keep what failed until it is written, unless there is too much of it."""
        if (self._noted and noted.joins(self._noted[-1])) or self.permits(noted):
            self.note(noted)

    def permits(self, noted: Noted) -> bool:
        """Return whether another event of its kind may be noted in its second; where not, it is left out."""
        second = int(noted.at)
        if second != self._second:
            self._second = second
            self._noted_in_second.clear()
        self._noted_in_second[noted.kind] += 1
        is_permitted = self._noted_in_second[noted.kind] <= self._failures_max
        if not is_permitted:
            self.leave_out(noted.count, STORM)
        return is_permitted

    def hand_out(self, noted: Noted) -> OpenHandOut:
        """Keep a hand-out until it is written; what is told by its end by then is not written twice."""
        hand_out = OpenHandOut(noted, noted.count)
        if self._has_room:
            self._hand_outs.append(hand_out)
        else:
            self.leave_out(noted.count, BUFFER_FULL)
        return hand_out

    def leave_out(self, events: int, why: str) -> None:
        """Count what is left out."""
        if not self._left_out:
            self._left_out_since = self.now()
        self._left_out[why] += events

    def take(self) -> tuple[list[Noted], LeftOut | None]:
        """Return what is to be written, and what was left out; it does not wait here any more."""
        noted = [each.noted for each in self._hand_outs if each.open_count] + self._noted
        left_out = LeftOut(self._left_out, self._left_out_since) if self._left_out else None
        self._noted, self._hand_outs, self._left_out = [], [], Counter()
        return noted, left_out

    def leave_out_again(self, left_out: LeftOut) -> None:
        """Count again what could not be told."""
        self._left_out_since = left_out.since
        self._left_out.update(left_out.counts)

    def forget(self) -> None:
        """Leave out all that waits: it is of messages that may be no more."""
        noted, left_out = self.take()
        if left_out is not None:
            self.leave_out_again(left_out)
        if noted:
            self.leave_out(sum(each.count for each in noted), NOT_WRITTEN)

    @property
    def _has_room(self) -> bool:
        return len(self._noted) + len(self._hand_outs) < self._events_max
