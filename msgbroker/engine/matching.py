"""Which messages of a topic a group gets.

Decided when a lane reads a message, and not reopened later. What is true of a whole batch is decided once for the
batch: a message is looked at alone only where its neighbours may fare differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confdb.routes import (
    ExpressionFailedError,
    GroupRoute,
    HeaderPredicate,
    SubscriptionMode,
    SubscriptionRoute,
    TopicRoute,
)
from msgbroker.contract.names import ANY_EVENT_CODE
from msgbroker.engine.messages import MessageT


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What is true of a batch: whoever matches it for many groups finds out once."""

    event_codes: frozenset[str]
    has_targets: bool
    """Some of its messages are for one group only."""


def facts_of(messages: Sequence[MessageT]) -> BatchFacts:
    """Return the facts of a batch."""
    return BatchFacts(
        frozenset([message.event_code for message in messages]),
        any(message.target_group is not None for message in messages),
    )


@dataclass(frozen=True, slots=True)
class _Selection:
    """What the subscriptions ask of one event code in one queue."""

    direct_from: int | None
    """Every message from this offset on."""
    by_header: tuple[tuple[int, HeaderPredicate], ...]
    """From this offset on, those that satisfy the predicate."""


class Matcher:
    """Selects the messages of one topic for one group, by the subscriptions of one snapshot.

    Subscriptions may overlap; a message is selected once. Whether a group may see stress messages is not decided here,
    but at every hand-out.
    """

    def __init__(self, group: GroupRoute, topic: TopicRoute) -> None:
        self._group_id = group.group_id
        self._subscriptions = tuple(
            subscription for subscription in group.subscriptions if subscription.topic_id == topic.topic_id
        )
        self._selections: dict[tuple[int, str], _Selection] = {}
        self.failed_evaluations = 0
        """How often an expression failed on a message, which then did not match by it."""

    def select(
        self, messages: Sequence[MessageT], queue_id: int, facts: BatchFacts | None = None
    ) -> Sequence[MessageT]:
        """Return those of *messages*, ascending and all of one queue, that the group gets."""
        if not messages:
            return messages
        facts = facts or facts_of(messages)
        if facts.has_targets:
            messages = [m for m in messages if m.target_group is None or m.target_group == self._group_id]
            if not messages:
                return messages
        selections = {code: self._selection(queue_id, code) for code in facts.event_codes}
        first = messages[0].queue_offset
        if all(s.direct_from is not None and s.direct_from <= first for s in selections.values()):
            return messages
        if all(s.direct_from is None and not s.by_header for s in selections.values()):
            return []
        return [message for message in messages if self._matches(message, selections)]

    def _matches(self, message: MessageT, selections: Mapping[str, _Selection]) -> bool:
        selection = selections[message.event_code]
        offset = message.queue_offset
        if selection.direct_from is not None and selection.direct_from <= offset:
            return True
        headers = message.headers
        for start, predicate in selection.by_header:
            if start > offset:
                continue
            try:
                # Predicates are given a dict, whatever kind of mapping the message has.
                if predicate(headers if isinstance(headers, dict) else dict(headers)) is True:
                    return True
            except ExpressionFailedError:
                self.failed_evaluations += 1
        return False

    def _selection(self, queue_id: int, event_code: str) -> _Selection:
        selection = self._selections.get((queue_id, event_code))
        if selection is None:
            if len(self._selections) >= _SELECTIONS_MAX:
                self._selections.clear()
            selection = self._selections[queue_id, event_code] = self._select_by(queue_id, event_code)
        return selection

    def _select_by(self, queue_id: int, event_code: str) -> _Selection:
        asking = [s for s in self._subscriptions if s.event_code in (event_code, ANY_EVENT_CODE)]
        direct = [_start_of(s, queue_id) for s in asking if s.mode is SubscriptionMode.DIRECT]
        return _Selection(
            min(direct, default=None),
            tuple((_start_of(s, queue_id), s.predicate) for s in asking if s.predicate is not None),
        )


_SELECTIONS_MAX = 4_096
"""Queues times event codes that a matcher remembers; an open topic may have any number of codes."""


def _start_of(subscription: SubscriptionRoute, queue_id: int) -> int:
    return subscription.start_offsets.get(queue_id, 0)
