"""Whose turn it is to evaluate expressions on the event loop, and for how long.

In one turn of the event loop all groups together evaluate for `TURN_SECONDS`, each for a slice of that, and a message
more at most: an evaluation cannot be interrupted. Who had no time left waits in line, and whoever comes later waits
behind. Where a turn's time was used up, evaluating rests for as long, so that half of the event loop is left to
publishers and to everybody else. Messages that take no expression wait for none of this.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from msgbroker.server.lane_slot import LaneSlot

TURN_SECONDS: Final = 0.002
_SLICES_A_TURN: Final = 4

GroupT = TypeVar("GroupT")


class TimeSlice:
    """How long a group may evaluate in this turn of the event loop."""

    __slots__ = ("held", "seconds_left", "seconds_spent")

    def __init__(self, seconds: float = math.inf) -> None:
        self.seconds_left = seconds
        self.seconds_spent = 0.0
        self.held: dict[int, LaneSlot] = {}
        """Lanes, by queue_id, that had something to decide and no time left for it."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of it."""
        return self.seconds_left <= 0.0

    def spend(self, seconds: float) -> None:
        """Note that expressions were evaluated for so long."""
        self.seconds_left -= seconds
        self.seconds_spent += seconds

    def begin(self, seconds: float) -> None:
        """Begin anew, for the next group."""
        self.seconds_left = seconds
        self.seconds_spent = 0.0
        if self.held:
            self.held = {}


class EvaluationTurns(Generic[GroupT]):
    """See the module. Groups are known by their ids."""

    def __init__(self, turn_seconds: float = TURN_SECONDS, now: Callable[[], float] = time.monotonic) -> None:
        self._turn_seconds = turn_seconds
        self._now = now
        self._seconds_left = 0.0
        self._rests_until = -math.inf
        self._line: dict[int, GroupT] = {}
        self._behind: dict[int, GroupT] = {}
        """Those that had time in this turn, and need more: behind all that come to the line in it."""
        self._slice = TimeSlice()

    def begin(self) -> None:
        """Begin a turn of the event loop."""
        self._seconds_left = self._turn_seconds if self._now() >= self._rests_until else 0.0

    def slice_for(self, group_id: int) -> TimeSlice:
        """Return what a group may take now: nothing, where others wait in line. Good until the next one's."""
        is_first = not self._line or next(iter(self._line)) == group_id
        # One for all, in turn: most groups have no expressions, and this is done for each of them in each turn.
        self._slice.begin(min(self._seconds_left, self._turn_seconds / _SLICES_A_TURN) if is_first else 0.0)
        return self._slice

    def took(self, group_id: int, group: GroupT) -> None:
        """Take note of what a group did with its slice: where it needs more, it waits in line, behind the others."""
        time_slice = self._slice
        self._seconds_left -= time_slice.seconds_spent
        if time_slice.seconds_spent or not time_slice.held:
            self._line.pop(group_id, None)
        if time_slice.seconds_spent and time_slice.held:
            self._behind[group_id] = group
        elif time_slice.held and group_id not in self._behind:
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
        self._line.update(self._behind)
        self._behind.clear()
        now = self._now()
        spent = self._turn_seconds - self._seconds_left
        if self._seconds_left <= 0.0 and now >= self._rests_until:
            self._rests_until = now + spent
        return max(0.0, self._rests_until - now) if self._line else None
