"""The pump: once in a turn of the event loop, the groups that are marked hand out what they can.

Whatever happens to a group only marks it, at the cost of one entry in a dict. The marked ones share one budget of
messages, and one of time for expressions, so that no group's load starves another's and publishing never waits for
delivery. A group that needed more than its share is marked again, behind the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from confdb.routes import GroupRoute
from msgbroker.server import clock
from msgbroker.server.deliver.expressions.turns import EvaluationTurns, TimeSlice

BATCH_MESSAGES_MAX: Final = 256
"""A lane gives so many to one instance before the next one's turn: a group's share of a turn is not less."""


@dataclass(slots=True)
class PumpBudget:
    """What a group may hand out in its turn: it takes from it as it goes, and ends where nothing is left."""

    messages: int = 4_000
    """How many messages may be handed out, or decided."""
    time_slice: TimeSlice = field(default_factory=TimeSlice)
    """How long expressions may be evaluated in it."""


class Pumped(Protocol):
    """What has turns of the pump: a group."""

    route: GroupRoute

    def pump(self, now: float, budget: PumpBudget) -> bool:
        """Hand out what can be handed out; return whether there is more than the budget allowed."""
        ...


class Marks(Protocol):
    """Who is told that there may be something to hand out: the pump."""

    def mark(self, group: Pumped) -> None:
        """Pump *group* in this turn of the event loop, or the next."""
        ...


class TurnCaller(Protocol):
    """Who does what waits for nothing in the next turn of the event loop: `WatchedTasks`."""

    def call_soon(self, work: Callable[[], None]) -> None:
        """Have *work* done once the event loop gets to it."""
        ...


class Pump:
    """The turns of all groups of this broker."""

    def __init__(self, caller: TurnCaller, *, turn_messages_max: int) -> None:
        self._caller = caller
        self._turn_messages_max = turn_messages_max
        self._marked: dict[int, Pumped] = {}
        self._is_scheduled = False
        self._turns: EvaluationTurns[Pumped] = EvaluationTurns()
        self._goes_on: asyncio.TimerHandle | None = None

    def mark(self, group: Pumped) -> None:
        """Pump *group* in this turn of the event loop, or the next."""
        self._marked[group.route.group_id] = group
        self._schedule()

    def pump_once(self, now: float) -> None:
        """Give each marked group one turn, and what is left of the budget to those that wait for time to evaluate."""
        marked = self._marked
        messages_left = self._turn_messages_max
        share = max(BATCH_MESSAGES_MAX, messages_left // max(1, len(marked)))
        self._turns.begin()
        for _ in range(len(marked)):
            if messages_left <= 0:
                break
            group = marked.pop(next(iter(marked)))
            messages_left -= self._pump_group(group, now, min(share, messages_left))
        while messages_left > 0 and (group_in_line := self._turns.next_in_line()) is not None:
            messages_left -= self._pump_group(group_in_line, now, min(share, messages_left))
        if marked:
            self._schedule()
        self._go_on_in(self._turns.end())

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._caller.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        self.pump_once(clock.now())

    def _pump_group(self, group: Pumped, now: float, messages_max: int) -> int:
        """Pump one group; return how much work it was, in messages."""
        group_id = group.route.group_id
        budget = PumpBudget(messages_max, self._turns.slice_for(group_id))
        if group.pump(now, budget):
            # Behind the others.
            self.mark(group)
        self._turns.took(group_id, group)
        return messages_max - budget.messages

    def _go_on_in(self, seconds: float | None) -> None:
        """Pump again when there is time for expressions again, for the groups that wait for it."""
        if self._goes_on is not None:
            self._goes_on.cancel()
            self._goes_on = None
        if seconds is not None:
            self._goes_on = asyncio.get_running_loop().call_later(seconds, self._schedule)
