"""What comes of HEADER expressions on the messages that lanes read, and what that costs.

Most are evaluated on the event loop, in slices of time: what a slice has decided the lane is fed at once, and it is
never evaluated again. What is too dear for that waits for the helper process (`dear`), and is decided here
by what that said: expressions that cost too much by their structure, from before there was a limit, and those that
turned out to take long. The time they take is measured by the thread's own time, for each slice and not for each
message; so a machine that is busy with something else makes no expression look slow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from msgbroker.contract import limits
from msgbroker.engine.matching import Outcome, Selected
from msgbroker.server.deliver.expressions.failures import ExpressionFailures
from msgbroker.server.deliver.expressions.known_outcomes import KnownOutcomes
from msgbroker.server.deliver.expressions.lane_line import GivesTurns, LaneInLine, LaneLine
from msgbroker.server.deliver.expressions.turns import TURN_SECONDS, TimeSlice
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.log.message import LogMessage

log = structlog.get_logger(__name__)

SLOW_SECONDS: Final = 0.001
"""From how long on an expression that takes so long for a message is slow, and not evaluated on the event loop: twice
what may be registered can take."""
CHEAP_SECONDS: Final = SLOW_SECONDS / 4
LONG_SECONDS: Final = 0.000_02
"""How long an expression may take for a message and be work like any other: all else that a broker does for one takes
half as long."""
DEAR_SECONDS: Final = 0.000_05
"""From how long on a group that takes so much time for a message is behind by its own doing: nobody else is made to
wait for it."""
_SLOW_SLICES: Final = 3
"""So many slow slices make expressions slow. One may be chance: a collection of garbage falls into some slice."""
_ONE_SLOW_MESSAGE_SECONDS: Final = 0.008
"""A slice that took so long had a message that took most of it: slices end after each message, and are shorter."""
_FORGOTTEN_SECONDS: Final = 0.000_01
"""A slow slice is forgotten once it comes to so little for each of the evaluations since: what takes 10 ms on one
message in a thousand is slow, however quick it is on the others."""
_QUIET_HERE_MIN: Final = 100
_QUIET_ELSEWHERE_MIN: Final = 1_000
_LOOK_SECONDS: Final = 0.000_000_5
"""What a message takes beside its evaluation: most of a batch may be of other event codes."""
_REACH_MIN: Final = 64
"""So many messages are looked at in any case: some of them may take no expression, and need no time."""
_REACH_SECONDS_EACH_MIN: Final = 0.000_001
_MEASURED_MAX: Final = 10_000
_REMEMBERED: Final = 256

TopicOfGroup = tuple[int, int]
"""Names the expressions of a group on a topic: group_id, topic_id."""


@dataclass(slots=True)
class Measured:
    """What the expressions of one group on one topic were measured to take."""

    expressions: tuple[str, ...]
    is_costly: bool
    """They cost too much by their structure: the next message may take long, whatever the last ones took."""
    is_slow: bool
    """They are not evaluated on the event loop."""
    seconds: float = 0.0
    evaluations: int = 0
    _slow_slices: int = 0
    _quiet_left: int = 0
    """How many evaluations more have to be quick here, or cheap elsewhere, until what was slow is forgotten."""

    @property
    def seconds_each(self) -> float:
        """What an evaluation takes, by the last few hundred."""
        return self.seconds / self.evaluations if self.evaluations else 0.0

    def add_slice(self, seconds: float, evaluations: int) -> None:
        """Take note of a slice on the event loop."""
        self._add(seconds, evaluations)
        if seconds >= _ONE_SLOW_MESSAGE_SECONDS or seconds >= SLOW_SECONDS * evaluations:
            self._slow_slices += 1
            self._remember(seconds, _QUIET_HERE_MIN)
            self.is_slow = self._slow_slices >= _SLOW_SLICES
        else:
            self._count_quiet(evaluations)

    def add_elsewhere(self, seconds: float, evaluations: int, longest_seconds: float) -> None:
        """Take note of what the helper process took, in all and for the message that took longest."""
        self._add(seconds, evaluations)
        if self.is_costly or seconds > CHEAP_SECONDS * evaluations or longest_seconds >= SLOW_SECONDS:
            self._remember(longest_seconds, _QUIET_ELSEWHERE_MIN)
            return
        self._count_quiet(evaluations)
        self.is_slow = self._slow_slices >= _SLOW_SLICES

    def _remember(self, seconds: float, evaluations_min: int) -> None:
        self._quiet_left = max(self._quiet_left, evaluations_min, round(seconds / _FORGOTTEN_SECONDS))

    def _count_quiet(self, evaluations: int) -> None:
        self._quiet_left -= evaluations
        if self._quiet_left <= 0:
            self._slow_slices = self._quiet_left = 0

    def _add(self, seconds: float, evaluations: int) -> None:
        self.seconds += seconds
        self.evaluations += evaluations
        if self.evaluations > _REMEMBERED:
            self.seconds, self.evaluations = self.seconds / 2, self.evaluations // 2


class Evaluations:
    """Evaluates for all lanes of this broker, and knows what the expressions of each group on each topic take."""

    def __init__(
        self, now: Callable[[], float] = time.monotonic, cpu_now: Callable[[], float] = time.thread_time
    ) -> None:
        self.known = KnownOutcomes()
        self.failures = ExpressionFailures()
        self.line = LaneLine()
        """Lanes that wait for what the helper process says."""
        self.problem = ""
        """Why the helper process says nothing, where that is so."""
        self._now = now
        self._cpu_now = cpu_now
        self._measured: dict[TopicOfGroup, Measured] = {}

    def reach(self, owned: OwnedLane, time_slice: TimeSlice) -> int:
        """Return how many messages are worth looking at for *time_slice*: those that it will do for, and some more."""
        measured = self.measured(owned)
        if measured.is_slow:
            return _REACH_MIN
        seconds = min(time_slice.seconds_left, TURN_SECONDS)
        return max(_REACH_MIN, int(seconds / max(measured.seconds_each, _REACH_SECONDS_EACH_MIN)))

    def decide(
        self,
        owned: OwnedLane,
        messages: Sequence[LogMessage],
        time_slice: TimeSlice,
        group: GivesTurns,
    ) -> Selected[LogMessage]:
        """Decide what the lane reads, as far as it can be decided now. Where more can be, *group* is told."""
        measured = self.measured(owned)
        if measured.is_slow:
            owned.is_dear = True
            selected = owned.matcher.select_known(messages, owned.lane.key.queue_id, self.known.find)
            self._take_failed(owned)
            if selected.decided < len(messages):
                self.line.add(LaneInLine(owned, group))
            return selected
        if time_slice.is_over:
            # What takes no expression takes no time either.
            selected = owned.matcher.select_known(messages, owned.lane.key.queue_id, _nothing_known)
            if selected.decided < len(messages):
                time_slice.held[owned.lane.key.queue_id] = owned
            return selected
        return self._evaluate(owned, measured, messages, time_slice)

    def _evaluate(
        self, owned: OwnedLane, measured: Measured, messages: Sequence[LogMessage], time_slice: TimeSlice
    ) -> Selected[LogMessage]:
        matcher, now = owned.matcher, self._now
        evaluated_before = matcher.evaluations
        cpu_before = self._cpu_now()
        started_at = now()
        ends_at = started_at + time_slice.seconds_left
        selected = matcher.select_within(messages, owned.lane.key.queue_id, lambda: now() >= ends_at)
        evaluations = matcher.evaluations - evaluated_before
        if evaluations:
            spent_seconds = now() - started_at
            looking_seconds = selected.decided * _LOOK_SECONDS
            measured.add_slice(max(0.0, self._cpu_now() - cpu_before - looking_seconds), evaluations)
            time_slice.spend(spent_seconds, are_long=measured.seconds_each >= LONG_SECONDS)
            owned.is_dear = measured.seconds_each >= DEAR_SECONDS
            if measured.is_slow:
                log.warning("expressions.moved_out", lane=owned.lane.key, seconds=round(measured.seconds_each, 6))
        self._take_failed(owned)
        return selected

    def _take_failed(self, owned: OwnedLane) -> None:
        if not owned.matcher.failed:
            return
        for subscription_id, failed in owned.matcher.take_failed().items():
            problem = failed.problem or self.known.problem_of(failed.expression)
            self.failures.note(owned.lane.key.group_id, subscription_id, failed.count, problem)

    def measured(self, owned: OwnedLane) -> Measured:
        """Return what is known of the lane's expressions; of others than those it selects by now nothing is."""
        name = (owned.lane.key.group_id, owned.topic.topic_id)
        measured = self._measured.get(name)
        if measured is None or measured.expressions != owned.matcher.expressions:
            is_costly = owned.matcher.cost > limits.EXPRESSION_COST_MAX
            measured = self._measured[name] = Measured(owned.matcher.expressions, is_costly, is_slow=is_costly)
            if len(self._measured) > _MEASURED_MAX:
                del self._measured[next(iter(self._measured))]
        return measured

    def slow(self) -> list[TopicOfGroup]:
        """Return the groups with the topics on which they were slow when they were last looked at."""
        return [name for name, measured in self._measured.items() if measured.is_slow]


def _nothing_known(_expression: str, _message: LogMessage) -> Outcome | None:
    return None
