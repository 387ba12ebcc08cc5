"""What is known of expressions on messages: what the helper process said, until it is used, and for a while longer.

Of a message as it is stored, whichever lane asks: a lane that was closed and is claimed again, and another group with
the same expression, need not ask again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from msgbroker.engine.matching import Outcome
from msgbroker.server.log.message import LogMessage

OUTCOMES_MAX: Final = 20_000
PROBLEMS_MAX: Final = 1_000

_Name = tuple[str, int, int, int]


class KnownOutcomes:
    """The outcomes and the last problems that are remembered: so many of each at most, and the oldest go first."""

    def __init__(self, count_max: int = OUTCOMES_MAX) -> None:
        self._count_max = count_max
        self._known: OrderedDict[_Name, Outcome] = OrderedDict()
        self._problems: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def find(self, expression: str, message: LogMessage) -> Outcome | None:
        """Return what came of *expression* on *message*, if that is known."""
        return self._known.get(_name(expression, message))

    def put(self, expression: str, message: LogMessage, outcome: Outcome) -> None:
        """Take note of what came of *expression* on *message*."""
        self._known[_name(expression, message)] = outcome
        if len(self._known) > self._count_max:
            self._known.popitem(last=False)

    def problem_of(self, expression: str) -> str:
        """Return what went wrong when *expression* failed the last time; empty if that is not known."""
        return self._problems.get(expression, "")

    def put_problem(self, expression: str, problem: str) -> None:
        """Take note of what went wrong with *expression*."""
        self._problems[expression] = problem
        if len(self._problems) > PROBLEMS_MAX:
            self._problems.popitem(last=False)


def _name(expression: str, message: LogMessage) -> _Name:
    # With its time: where a log lost its end, other messages are stored at the same offsets, later.
    return expression, message.queue_id, message.queue_offset, message.stored_at_us
