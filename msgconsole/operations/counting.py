"""How many messages of the log are meant: counted one by one where they are few, else estimated from some of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from confdb.expressions.compiled import cost_of_expression
from confdb.routes import GroupRoute, TopicRoute
from msgbroker.contract import limits
from msgbroker.contract.errors import InvalidSettingError
from msgbroker.engine.stress import StressGate
from msgdb.jobs.specs import AskedFor
from msgdb.log.heads import MessageHead, read_heads
from msgdb.postgres.connections import Connection

EXACT_MAX: Final = 100_000
"""So many messages are looked at to count those that are meant: of more it is estimated."""
_SAMPLES: Final = 50
_SAMPLE_MESSAGES: Final = 500
_READ_AT_ONCE: Final = 2_000

OffsetsOfQueue = tuple[int, int, int]
"""A queue, the first offset that is meant, and the one after the last."""


class Counted(NamedTuple):
    """How many messages are meant."""

    looked_at: int
    """How many messages there are in the ranges."""
    selected: int
    """How many of them are meant."""
    denied: int
    """How many of these nobody may be handed."""
    copies: int
    """How many of these were stored once more for a single group."""
    is_exact: bool
    """Whether each was looked at; else it is about so many."""


class Selects(Protocol):
    """Says which messages are meant: `msgbroker.engine.selection.Selection`, or what a lane goes by."""

    def takes(self, message: MessageHead) -> bool:
        """Return whether the message is meant."""


IsDenied = Callable[[MessageHead], bool]


def _is_free(_: MessageHead) -> bool:
    return False


async def count_selected(
    conn: Connection, ranges: Sequence[OffsetsOfQueue], selection: Selects, is_denied: IsDenied = _is_free
) -> Counted:
    """Return how many messages of these ranges are meant."""
    total = sum(end - first for _, first, end in ranges)
    tally = _Tally(is_denied)
    if total <= EXACT_MAX:
        await _count(conn, ranges, selection, tally)
        return Counted(total, tally.selected, tally.denied, tally.copies, is_exact=True)
    await _sample(conn, ranges, selection, tally, total)
    each = total / max(tally.looked_at, 1)
    selected, denied, copies = (round(each * count) for count in (tally.selected, tally.denied, tally.copies))
    return Counted(total, selected, denied, copies, is_exact=False)


def denied_to(group: GroupRoute, topic: TopicRoute, gate: StressGate) -> IsDenied:
    """Return what tells of messages of a topic whether a group may not be handed them."""

    def is_denied(head: MessageHead) -> bool:
        return head.stress and not gate.allows(group.group_id, topic.topic_id, head.event_code)

    return is_denied


def are_cheap(group: GroupRoute, topic: TopicRoute) -> bool:
    """Return whether what a group asks for of a topic now may be tried on many messages."""
    return all(
        subscription.topic_id != topic.topic_id
        or subscription.expression is None
        or cost_of_expression(subscription.expression).steps <= limits.EXPRESSION_COST_MAX
        for subscription in group.subscriptions
    )


def check_costs(group: GroupRoute, topic: TopicRoute) -> None:
    """Raise InvalidSettingError where what a group asks for of a topic now costs too much to be tried."""
    if not are_cheap(group, topic):
        problem = f"of a subscription of {group.name} costs too much to be tried on many messages"
        raise InvalidSettingError("expression", problem)


def asked_by(group: GroupRoute, topic: TopicRoute) -> tuple[AskedFor, ...]:
    """Return what a group asks for of a topic now. Raises as `check_costs` does."""
    check_costs(group, topic)
    return tuple(
        AskedFor(subscription.event_code, subscription.expression)
        for subscription in group.subscriptions
        if subscription.topic_id == topic.topic_id
    )


@dataclass(slots=True)
class _Tally:
    """Adds up what was looked at."""

    is_denied: IsDenied
    looked_at: int = 0
    selected: int = 0
    denied: int = 0
    copies: int = 0

    def add(self, heads: Sequence[MessageHead], selection: Selects) -> None:
        taken = list(filter(selection.takes, heads))
        self.looked_at += len(heads)
        self.selected += len(taken)
        self.denied += sum(map(self.is_denied, taken))
        self.copies += sum(head.target_group is not None for head in taken)


async def _count(conn: Connection, ranges: Sequence[OffsetsOfQueue], selection: Selects, tally: _Tally) -> None:
    for queue_id, first, end in ranges:
        at = first
        while at < end:
            heads = await read_heads(conn, queue_id, at, end, _READ_AT_ONCE)
            if not heads:
                break
            tally.add(heads, selection)
            at = heads[-1].queue_offset + 1


async def _sample(
    conn: Connection, ranges: Sequence[OffsetsOfQueue], selection: Selects, tally: _Tally, total: int
) -> None:
    """Look at samples that lie evenly in all of the ranges."""
    for queue_id, first, end in ranges:
        samples = max(1, round(_SAMPLES * (end - first) / total))
        for number in range(samples):
            at = first + (end - first) * number // samples
            tally.add(await read_heads(conn, queue_id, at, end, _SAMPLE_MESSAGES), selection)
