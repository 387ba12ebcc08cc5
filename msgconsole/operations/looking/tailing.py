"""Looking at a topic's messages as they come: by offsets, beside all groups, and never more than so many a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from confdb.expressions.compiled import compile_expression, cost_of_expression
from confdb.routes import ExpressionFailedError, HeaderPredicate
from msgbroker.contract import limits
from msgbroker.contract.errors import InvalidSettingError, TopicNotFoundError
from msgconsole.operations.looking.in_log import merge_spans
from msgconsole.operations.looking.where import load_checked
from msgconsole.operations.stores import Stores
from msgdb.log.found import FoundMessage, Position
from msgdb.log.queues import list_topic_queues
from msgdb.log.reads import first_offsets, next_offsets
from msgdb.looking.bodies import read_bodies, read_together
from msgdb.looking.spans import Span
from msgdb.looking.stretches import EVERY_MESSAGE, WantedMessages, read_stretches
from msgdb.postgres.connections import Connection

LOOKED_AT_MAX: Final = 5_000
"""So many of a queue's newest messages are looked at in a round: who is further behind passes the rest."""
_READ_MAX: Final = 500
"""So many of a queue are read in a round, for an expression to choose from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTail:
    """Which messages somebody wants to see as they come."""

    namespace: str
    topic: str
    wanted: WantedMessages = EVERY_MESSAGE
    expression: str | None = None
    """What their headers must satisfy, too."""
    last: int = 0
    """So many of those that are there already come first."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a round has shown."""

    messages: list[tuple[FoundMessage, bytes]]
    passed: int
    """How many messages were passed without being looked at, or shown: they came too fast."""


class Allowance:
    """How many messages may be shown: so many a second, and what a second was not used for is not saved up. Pure."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._left = 1.0
        self._at = now

    def grant(self, now: float) -> int:
        """Return how many may be shown now."""
        self._left = min(max(self._rate, 1.0), self._left + (now - self._at) * self._rate)
        self._at = now
        return int(self._left)

    def use(self, count: int) -> None:
        """Note that so many were."""
        self._left -= count


def predicate_of(expression: str | None) -> HeaderPredicate | None:
    """Return what an expression asks for. Raises InvalidExpressionError, and InvalidSettingError: it costs too much."""
    if expression is None:
        return None
    if cost_of_expression(expression).steps > limits.EXPRESSION_COST_MAX:
        raise InvalidSettingError("expression", "costs too much to be tried on many messages")
    return compile_expression(expression)


class Tail:
    """A topic as it goes on. `look_once` shows what came since the last time."""

    def __init__(self, stores: Stores, topic_id: int, wanted: WantedTail, predicate: HeaderPredicate | None) -> None:
        self._stores = stores
        self._topic_id = topic_id
        self._wanted = wanted
        self._predicate = predicate
        self._next: dict[int, int] | None = None

    async def look_once(self, count_max: int) -> Seen:
        """Return what came since the last time, in its order, *count_max* messages at most.

        The first time, the last that are there already.
        """
        async with self._stores.messages.looking() as conn:
            ends = await next_offsets(conn, [queue.queue_id for queue in await list_topic_queues(conn, self._topic_id)])
            if self._next is None:
                found, passed = await self._newest(conn, ends), 0
            else:
                found, passed = await self._since(conn, self._next, ends, count_max)
                # What is more than may be in memory at once is passed, as what is too many.
                fitting = _fitting(found)
                found, passed = fitting, passed + len(found) - len(fitting)
            bodies = await read_bodies(conn, [message.position for message in found])
        self._next = ends
        return Seen([(each, bodies[each.position]) for each in found if each.position in bodies], passed)

    async def _newest(self, conn: Connection, ends: Mapping[int, int]) -> list[FoundMessage]:
        if not self._wanted.last:
            return []
        firsts = await first_offsets(conn, list(ends))
        spans = [Span(queue_id, firsts[queue_id], end) for queue_id, end in ends.items() if firsts[queue_id] < end]
        merge = await merge_spans(conn, spans, self._wanted.wanted, self._wanted.last, newest_first=True)
        return _fitting([message for message in merge.found if self._takes(message)])[::-1]

    async def _since(
        self, conn: Connection, next_offset: Mapping[int, int], ends: Mapping[int, int], count_max: int
    ) -> tuple[list[FoundMessage], int]:
        # A queue that was not there before is read from its beginning.
        firsts = {queue_id: next_offset.get(queue_id, 0) for queue_id in ends}
        spans = [
            Span(queue_id, max(firsts[queue_id], end - LOOKED_AT_MAX), end)
            for queue_id, end in ends.items()
            if firsts[queue_id] < end
        ]
        passed = sum(span.first - firsts[span.queue_id] for span in spans)
        if not spans:
            return [], 0
        stretches = await read_stretches(conn, spans, self._wanted.wanted, _READ_MAX)
        found = sorted(
            (message for stretch in stretches for message in stretch.found if self._takes(message)), key=_position
        )
        # Of a stretch that gave as many as were asked for, the rest was not looked at.
        passed += sum(
            stretch.span.end - 1 - stretch.found[-1].queue_offset
            for stretch in stretches
            if len(stretch.found) == _READ_MAX
        )
        return found[:count_max], passed + len(found[count_max:])

    def _takes(self, message: FoundMessage) -> bool:
        try:
            return self._predicate is None or self._predicate(message.headers or {}) is True
        except ExpressionFailedError:
            # No match, as it is for a group.
            return False


async def open_tail(stores: Stores, wanted: WantedTail) -> Tail:
    """Return a topic to look at. Raises a NotFoundError, InvalidExpressionError."""
    predicate = predicate_of(wanted.expression)
    topic = (await load_checked(stores, wanted.namespace)).topics.get((wanted.namespace, wanted.topic))
    if topic is None:
        raise TopicNotFoundError(wanted.namespace, wanted.topic)
    return Tail(stores, topic.topic_id, wanted, predicate)


def _position(message: FoundMessage) -> Position:
    return message.position


def _fitting(found: list[FoundMessage]) -> list[FoundMessage]:
    """Return those, from the first on, whose bodies may be read at once."""
    return next(read_together(found), [])
