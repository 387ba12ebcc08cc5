"""Which messages of a topic a group gets.

Decided when a lane reads a message, and not reopened later. What is true of a whole batch is decided once for the
batch: a message is looked at alone only where its neighbours may fare differently.

Expressions take time, and it is the driver's. So it may have a batch decided as far as its time goes
(`select_within`), or have the expressions evaluated elsewhere: `questions` says which are asked of which message, and
`select_known` decides as far as the answers go. Either way what is decided is the beginning of the batch, and feeding
a lane just that is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, NamedTuple

from confdb.routes import (
    ExpressionFailedError,
    GroupRoute,
    HeaderPredicate,
    SubscriptionMode,
    SubscriptionRoute,
    TopicRoute,
)
from msgbroker.contract.names import ANY_EVENT_CODE
from msgbroker.engine.matching_share import asked_of
from msgbroker.engine.messages import MessageT
from msgdb.lanes.records import LaneReset


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What is true of a batch: whoever matches it for many groups finds out once."""

    event_codes: frozenset[str]
    has_targets: bool
    """Whether some of its messages are for one group only."""


def facts_of(messages: Sequence[MessageT]) -> BatchFacts:
    """Return what is true of a batch for every group that matches it."""
    return BatchFacts(
        frozenset([message.event_code for message in messages]),
        any(message.target_group is not None for message in messages),
    )


class Outcome(IntEnum):
    """What came of evaluating an expression on a message."""

    MATCH = 1
    NO_MATCH = 0
    FAILED = -1
    """It could not be evaluated: that is no match, and counted."""


class Selected(NamedTuple, Generic[MessageT]):
    """How far a batch was decided, and which messages of that match."""

    matched: Sequence[MessageT]
    decided: int
    """How many messages of the batch that is: those that do not match, too."""


@dataclass(slots=True)
class FailedEvaluations:
    """How often a subscription's expression failed on a message."""

    expression: str
    count: int = 0
    problem: str = ""
    """What went wrong the last time; empty where it was evaluated elsewhere."""


@dataclass(frozen=True, slots=True)
class _Selection:
    """What the subscriptions ask of one event code in one queue."""

    direct_from: int | None
    """Every message from this offset on is wanted, whatever its headers are; None where no subscription says so."""
    by_header: tuple[tuple[int, HeaderPredicate, str, int], ...]
    """Each wants, from an offset on, what satisfies a predicate; with the expression's text and the subscription_id."""

    def takes(self, queue_offset: int) -> bool:
        """Return whether every message at that offset is wanted, whatever its headers are."""
        return self.direct_from is not None and self.direct_from <= queue_offset

    def asks(self, queue_offset: int) -> bool:
        """Return whether it takes an expression to decide a message."""
        return bool(self.by_header) and not self.takes(queue_offset)


class Matcher:
    """Selects the messages of one topic for one group, by the subscriptions of one snapshot.

    Subscriptions may overlap; a message is selected once. One that is for a single group (it was redriven or replayed
    to it) that group gets whatever its subscriptions are by now, and no other. Whether a group may see stress messages
    is not decided here, but at every hand-out.
    """

    def __init__(self, group: GroupRoute, topic: TopicRoute, reset: LaneReset | None = None) -> None:
        """Make a matcher. *reset*: where the lane that it matches for was put by hand."""
        self._group_id = group.group_id
        self._reset = reset
        of_topic = [subscription for subscription in group.subscriptions if subscription.topic_id == topic.topic_id]
        self._subscriptions = tuple(subscription for subscription in of_topic if not subscription.paused)
        self.asked = asked_of(of_topic, topic.topic_id)
        """What it selects by, as a number that stands for it."""
        self._paused = {subscription.subscription_id: subscription for subscription in of_topic if subscription.paused}
        self._named_codes = frozenset([subscription.event_code for subscription in self._subscriptions])
        self._selections: dict[tuple[int, str], _Selection] = {}
        """What is asked, by queue and event code. Codes that no subscription names share one entry."""
        self.expressions = tuple(sorted({s.expression or "" for s in self._subscriptions if s.predicate is not None}))
        """The expressions by which it selects."""
        self.cost = max((s.cost for s in self._subscriptions), default=0)
        """What the dearest of them may cost, in steps."""
        self.evaluations = 0
        """On how many messages this matcher evaluated an expression."""
        self.failed_evaluations = 0
        """How often an expression failed on a message, which then did not match by it."""
        self.failed: dict[int, FailedEvaluations] = {}
        """The failures that `take_failed` has not returned yet, by subscription_id."""

    def select(
        self, messages: Sequence[MessageT], queue_id: int, facts: BatchFacts | None = None
    ) -> Sequence[MessageT]:
        """Return those of *messages*, ascending and all of one queue, that the group gets."""
        facts = facts or facts_of(messages)
        whole = self._as_a_whole(messages, self._selections_of(facts, queue_id), facts)
        return self.select_within(messages, queue_id, _never, facts).matched if whole is None else whole

    def select_within(
        self,
        messages: Sequence[MessageT],
        queue_id: int,
        is_over: Callable[[], bool],
        facts: BatchFacts | None = None,
    ) -> Selected[MessageT]:
        """Decide *messages* from their beginning on until *is_over*: at least the first of them.

        It is asked after each message that took an expression.
        """
        facts = facts or facts_of(messages)
        selections = self._selections_of(facts, queue_id)
        whole = self._as_a_whole(messages, selections, facts)
        if whole is not None:
            return Selected(whole, len(messages))
        matched: list[MessageT] = []
        decided, asked = len(messages), 0
        for number, message in enumerate(messages, 1):
            if facts.has_targets and message.target_group is not None:
                if message.target_group == self._group_id:
                    matched.append(message)
                continue
            selection = selections[message.event_code]
            if self._matches(message, selection):
                matched.append(message)
            if selection.by_header:
                asked += 1
                if is_over():
                    decided = number
                    break
        self.evaluations += asked
        return Selected(matched, decided)

    def questions(self, messages: Sequence[MessageT], queue_id: int) -> Iterator[tuple[str, ...]]:
        """Return for each message the expressions that it takes to decide it."""
        return (self._questions(message, self._selection(queue_id, message.event_code)) for message in messages)

    def select_known(
        self, messages: Sequence[MessageT], queue_id: int, find: Callable[[str, MessageT], Outcome | None]
    ) -> Selected[MessageT]:
        """Decide *messages* from their beginning on, as far as *find* knows what came of the expressions."""
        matched: list[MessageT] = []
        for number, message in enumerate(messages):
            selection = self._selection(queue_id, message.event_code)
            outcomes = [find(text, message) for text in self._questions(message, selection)]
            if Outcome.MATCH in outcomes or (not outcomes and self._matches_directly(message, selection)):
                matched.append(message)
            elif None in outcomes:
                return Selected(matched, number)
            else:
                self._note_failed_elsewhere(message, selection, outcomes)
        return Selected(matched, len(messages))

    # --- paused subscriptions ---------------------------------------------------------------------------------------

    @property
    def paused_ids(self) -> frozenset[int]:
        """The subscriptions that are paused: what only these want waits on the shelf."""
        return frozenset(self._paused)

    @property
    def paused_cost(self) -> int:
        """What asking one message of all paused subscriptions can cost, in steps."""
        return sum(subscription.cost for subscription in self._paused.values())

    def shelved_by(self, message: MessageT, queue_id: int) -> str:
        """Return by which paused subscriptions a message is wanted that no other wants; empty: by none."""
        if message.target_group is not None or self._matches(message, self._selection(queue_id, message.event_code)):
            return ""
        return self.paused_wanting(message, queue_id)

    def paused_wanting(self, message: MessageT, queue_id: int) -> str:
        """Return which paused subscriptions want a message, of which it is known that no other does."""
        if message.target_group is not None:
            return ""
        wanting = [
            subscription_id
            for subscription_id, subscription in self._paused.items()
            if subscription.event_code in {message.event_code, ANY_EVENT_CODE}
            and self._start_of(subscription, queue_id) <= message.queue_offset
            and self._satisfies(message, subscription)
        ]
        return ",".join(map(str, wanting))

    def standing_of(self, shelved_by: str) -> str | None:
        """Return who of those that a message is shelved by is paused still; empty where one goes on, None: none left.

        What was decided as the message was read is not asked again.
        """
        ids = [int(subscription_id) for subscription_id in shelved_by.split(",")]
        if any(subscription.subscription_id in ids for subscription in self._subscriptions):
            return ""
        return ",".join(str(subscription_id) for subscription_id in ids if subscription_id in self._paused) or None

    def _satisfies(self, message: MessageT, subscription: SubscriptionRoute) -> bool:
        if subscription.predicate is None:
            return subscription.mode is SubscriptionMode.DIRECT
        headers = message.headers
        try:
            return subscription.predicate(headers if isinstance(headers, dict) else dict(headers)) is True
        except ExpressionFailedError as error:
            self._note_failed(subscription.subscription_id, subscription.expression or "", error.problem)
            return False

    def take_failed(self) -> dict[int, FailedEvaluations]:
        """Return what failed since this was last asked."""
        failed, self.failed = self.failed, {}
        return failed

    def _as_a_whole(
        self, messages: Sequence[MessageT], selections: Mapping[str, _Selection], facts: BatchFacts
    ) -> Sequence[MessageT] | None:
        """Return what is selected, where that is true of all, or of none; else None."""
        if facts.has_targets:
            messages = [message for message in messages if message.target_group in {None, self._group_id}]
        if not messages:
            return messages
        first = messages[0].queue_offset
        if all(s.direct_from is not None and s.direct_from <= first for s in selections.values()):
            return messages
        if all(s.direct_from is None and not s.by_header for s in selections.values()):
            return [message for message in messages if message.target_group is not None] if facts.has_targets else []
        return None

    def _questions(self, message: MessageT, selection: _Selection) -> tuple[str, ...]:
        offset = message.queue_offset
        if message.target_group is not None or not selection.asks(offset):
            return ()
        return tuple(text for start, _, text, _ in selection.by_header if start <= offset)

    def _matches_directly(self, message: MessageT, selection: _Selection) -> bool:
        if message.target_group is not None:
            return message.target_group == self._group_id
        return selection.takes(message.queue_offset)

    def _matches(self, message: MessageT, selection: _Selection) -> bool:
        offset = message.queue_offset
        if selection.takes(offset):
            return True
        headers = message.headers
        for start, predicate, text, subscription_id in selection.by_header:
            if start > offset:
                continue
            try:
                # Predicates are given a dict, whatever kind of mapping the message has.
                if predicate(headers if isinstance(headers, dict) else dict(headers)) is True:
                    return True
            except ExpressionFailedError as error:
                self._note_failed(subscription_id, text, error.problem)
        return False

    def _note_failed_elsewhere(
        self, message: MessageT, selection: _Selection, outcomes: Sequence[Outcome | None]
    ) -> None:
        if Outcome.FAILED not in outcomes:
            return
        asked = [each for each in selection.by_header if each[0] <= message.queue_offset]
        for (_, _, text, subscription_id), outcome in zip(asked, outcomes, strict=True):
            if outcome is Outcome.FAILED:
                self._note_failed(subscription_id, text, "")

    def _note_failed(self, subscription_id: int, expression: str, problem: str) -> None:
        self.failed_evaluations += 1
        failed = self.failed.get(subscription_id)
        if failed is None:
            failed = self.failed[subscription_id] = FailedEvaluations(expression)
        failed.count += 1
        failed.problem = problem or failed.problem

    def _selections_of(self, facts: BatchFacts, queue_id: int) -> Mapping[str, _Selection]:
        return {code: self._selection(queue_id, code) for code in facts.event_codes}

    def _selection(self, queue_id: int, event_code: str) -> _Selection:
        if event_code not in self._named_codes:
            # Publishers make up any number of them.
            event_code = ANY_EVENT_CODE
        selection = self._selections.get((queue_id, event_code))
        if selection is None:
            if len(self._selections) >= _SELECTIONS_MAX:
                self._selections.clear()
            selection = self._selections[queue_id, event_code] = self._select_by(queue_id, event_code)
        return selection

    def _select_by(self, queue_id: int, event_code: str) -> _Selection:
        asking = [s for s in self._subscriptions if s.event_code in (event_code, ANY_EVENT_CODE)]
        direct = [self._start_of(s, queue_id) for s in asking if s.mode is SubscriptionMode.DIRECT]
        return _Selection(
            min(direct, default=None),
            tuple(
                (self._start_of(s, queue_id), s.predicate, s.expression or "", s.subscription_id)
                for s in asking
                if s.predicate is not None
            ),
        )

    def _start_of(self, subscription: SubscriptionRoute, queue_id: int) -> int:
        start = subscription.start_offsets.get(queue_id, 0)
        if self._reset is not None and subscription.subscription_id <= self._reset.subscription_id:
            return min(start, self._reset.offset)
        return start


_SELECTIONS_MAX = 4_096
"""How many selections a matcher remembers: one for each queue and event code."""


def _never() -> bool:
    return False
