"""What comes of HEADER expressions on the messages that lanes read, and what that costs.

They are evaluated on the event loop, in slices of time: what a slice has decided the lane is fed at once, and it is
never evaluated again. What an expression takes is measured by the thread's own time, for each slice and not for each
message; so a machine that is busy with something else makes no expression look slow.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from msgbroker.engine.matching import Selected
from msgbroker.server.evaluation_turns import TimeSlice
from msgbroker.server.lane_slot import LaneSlot
from msgbroker.server.log_message import LogMessage

DEAR_SECONDS: Final = 0.000_05
"""Who takes so long for a message is behind by its own doing: nobody else is made to wait for it."""
_MEASURED_MAX: Final = 10_000
_REMEMBERED: Final = 256


@dataclass(slots=True)
class Measured:
    """What the expressions of one group on one topic were measured to take."""

    expressions: tuple[str, ...]
    seconds: float = 0.0
    evaluations: int = 0

    @property
    def seconds_each(self) -> float:
        """What an evaluation takes, by the last few hundred."""
        return self.seconds / self.evaluations if self.evaluations else 0.0

    def add(self, seconds: float, evaluations: int) -> None:
        """Take note of a slice."""
        self.seconds += seconds
        self.evaluations += evaluations
        if self.evaluations > _REMEMBERED:
            self.seconds, self.evaluations = self.seconds / 2, self.evaluations // 2


class Evaluations:
    """See the module."""

    def __init__(
        self, now: Callable[[], float] = time.monotonic, cpu_now: Callable[[], float] = time.thread_time
    ) -> None:
        self._now = now
        self._cpu_now = cpu_now
        self._measured: OrderedDict[tuple[int, int], Measured] = OrderedDict()

    def decide(self, slot: LaneSlot, messages: Sequence[LogMessage], time_slice: TimeSlice) -> Selected[LogMessage]:
        """Decide what the lane reads, as far as it can be decided now."""
        queue_id = slot.lane.key.queue_id
        if time_slice.is_over:
            time_slice.held[queue_id] = slot
            return Selected((), 0)
        return self._evaluate(slot, messages, time_slice)

    def _evaluate(self, slot: LaneSlot, messages: Sequence[LogMessage], time_slice: TimeSlice) -> Selected[LogMessage]:
        matcher, now = slot.matcher, self._now
        evaluated_before = matcher.evaluations
        cpu_before = self._cpu_now()
        started_at = now()
        ends_at = started_at + time_slice.seconds_left
        selected = matcher.select_within(messages, slot.lane.key.queue_id, lambda: now() >= ends_at)
        evaluations = matcher.evaluations - evaluated_before
        if evaluations:
            time_slice.spend(now() - started_at)
            measured = self.measured(slot)
            measured.add(self._cpu_now() - cpu_before, evaluations)
            slot.is_dear = measured.seconds_each >= DEAR_SECONDS
        return selected

    def measured(self, slot: LaneSlot) -> Measured:
        """Return what is known of the lane's expressions; of others than those it selects by now nothing is."""
        name = (slot.lane.key.group_id, slot.topic.topic_id)
        measured = self._measured.get(name)
        if measured is None or measured.expressions != slot.matcher.expressions:
            measured = self._measured[name] = Measured(slot.matcher.expressions)
            if len(self._measured) > _MEASURED_MAX:
                self._measured.popitem(last=False)
        self._measured.move_to_end(name)
        return measured
