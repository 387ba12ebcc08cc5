"""Whose turn it is to evaluate expressions on the event loop, and for how long.

In one turn of the event loop all groups together evaluate for `TURN_SECONDS`, each for a slice of that, and a message
more at most: an evaluation cannot be interrupted. Who had no time left waits in line, and whoever comes later waits
behind. Where a turn's time was used up, evaluating rests for as long as long expressions took of it, so that they leave
half of the event loop to publishers and to everybody else. Expressions that take no longer than the rest of what is
done for a message are work like any other: for their sake nothing rests. Messages that take no expression wait for none
of this.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from msgbroker.server.deliver.lanes.owned_lane import OwnedLane

TURN_SECONDS: Final = 0.002
_SLICES_A_TURN: Final = 4

GroupT = TypeVar("GroupT")


class TimeSlice:
    """How long a group may evaluate in this turn of the event loop."""

    __slots__ = ("held", "long_seconds", "seconds_left", "seconds_spent")

    def __init__(self, seconds: float = math.inf) -> None:
        self.seconds_left = seconds
        self.seconds_spent = 0.0
        self.long_seconds = 0.0
        """The part of these seconds that went to expressions of which each evaluation takes long."""
        self.held: dict[int, OwnedLane] = {}
        """Lanes, by queue_id, that had something to decide and no time left for it."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of the slice."""
        return self.seconds_left <= 0.0

    def spend(self, seconds: float, *, are_long: bool) -> None:
        """Note that expressions were evaluated for so long; *are_long*: each of them takes long."""
        self.seconds_left -= seconds
        self.seconds_spent += seconds
        if are_long:
            self.long_seconds += seconds


class EvaluationTurns(Generic[GroupT]):
    """The line of groups that wait for time to evaluate, and what is left of that in this turn. Known by their ids."""

    def __init__(self, turn_seconds: float = TURN_SECONDS, now: Callable[[], float] = time.monotonic) -> None:
        self._turn_seconds = turn_seconds
        self._slice_seconds = turn_seconds / _SLICES_A_TURN
        self._now = now
        self._seconds_left = 0.0
        self._long_seconds = 0.0
        self._rests_until: float | None = None
        self._line: dict[int, GroupT] = {}
        self._behind: dict[int, GroupT] = {}
        """The groups that had time in this turn, and need more: they come behind all that come to the line in it."""
        self._slice = TimeSlice()
        """The one slice that groups are given in turn: most have no expressions, and each gets one in each turn."""

    def begin(self) -> None:
        """Begin a turn of the event loop."""
        if self._rests_until is not None and self._now() >= self._rests_until:
            self._rests_until = None
        self._seconds_left = self._turn_seconds if self._rests_until is None else 0.0
        self._long_seconds = 0.0

    def slice_for(self, group_id: int) -> TimeSlice:
        """Return what a group may take now: nothing, where others wait in line. Good until the next one's."""
        time_slice = self._slice
        is_first = not self._line or next(iter(self._line)) == group_id
        time_slice.seconds_left = min(self._seconds_left, self._slice_seconds) if is_first else 0.0
        time_slice.seconds_spent = time_slice.long_seconds = 0.0
        if time_slice.held:
            time_slice.held = {}
        return time_slice

    def took(self, group_id: int, group: GroupT) -> None:
        """Take note of what a group did with its slice: where it needs more, it waits in line, behind the others."""
        spent, needs_more = self._slice.seconds_spent, bool(self._slice.held)
        self._seconds_left -= spent
        self._long_seconds += self._slice.long_seconds
        if self._line and (spent or not needs_more):
            self._line.pop(group_id, None)
        if needs_more and spent:
            self._behind[group_id] = group
        elif needs_more and group_id not in self._behind:
            self._line.setdefault(group_id, group)

    def next_in_line(self) -> GroupT | None:
        """Return the group whose turn it is, if there is time left for it."""
        if self._seconds_left <= 0.0:
            return None
        self._close_ranks()
        return next(iter(self._line.values()), None)

    def _close_ranks(self) -> None:
        if self._behind and not self._line:
            self._line, self._behind = self._behind, {}

    def end(self) -> float | None:
        """End a turn of the event loop; return in how many seconds those in line go on, or None: nobody waits."""
        if self._behind:
            self._line.update(self._behind)
            self._behind.clear()
        if self._seconds_left <= 0.0 and self._long_seconds:
            self._rests_until = self._now() + self._long_seconds
        if not self._line:
            return None
        return 0.0 if self._rests_until is None else max(0.0, self._rests_until - self._now())
