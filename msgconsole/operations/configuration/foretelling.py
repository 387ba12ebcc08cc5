"""What a change makes of the messages that a group gets: foretold from the newest ones of the log. Pure.

Each message is taken as if it were published once more: by the configuration before the change, and by the one after
it. What decides is what brokers decide by: the same matcher, the same expressions, the same rule for stress traffic.
No start of a subscription counts, as all that comes lies behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Final
from uuid import UUID

from confdb.expressions.compiled import missing_header
from confdb.routes import Snapshot
from msgbroker.engine.matching import Matcher
from msgbroker.engine.stress import StressGate, is_stress
from msgconsole.operations.matched import Matched
from msgdb.log.found import FoundMessage
from msgdb.postgres.binary_rows import datetime_of

EXAMPLES_MAX: Final = 3
_FAILED_HEADERS_MAX: Final = 10
_NEW_QUEUE: Final = 0
"""No subscription names it, as one that is younger than all of them: so it has no start there."""
_OTHERWISE: Final = "another failure"


class Fate(Enum):
    """What becomes of a message for a group."""

    DELIVERED = "delivered"
    WAITS = "waits"
    """Only paused subscriptions want it."""
    WITHHELD = "withheld"
    """It is stress traffic that the group would get, and may not see."""
    NOT_ASKED_FOR = "not asked for"


@dataclass(frozen=True, slots=True)
class Foretold:
    """What a group gets of the messages that were looked at, before a change and after it."""

    looked_at: int
    oldest_at: datetime | None
    newest_at: datetime | None
    before: int
    """How many match now, ..."""
    after: int
    """... and how many would."""
    both: int
    newly: int
    no_longer: int
    waits: int
    """How many of `after` would wait for paused subscriptions."""
    withheld: int
    """How many more would match, and are stress traffic that the group may not see."""
    failed_before: int
    failed: int
    """How many the expression would fail on: that is no match."""
    failed_headers: Mapping[str, int]
    """By the header that is missing."""
    newly_examples: tuple[UUID, ...]
    no_longer_examples: tuple[UUID, ...]
    copies: int
    """How many were redriven or replayed to single groups, and left out."""
    is_cut: bool = False
    """Whether it took so long that the oldest of them were not looked at."""


class GroupFates:
    """Decides messages of a topic for a group by one snapshot."""

    def __init__(self, snapshot: Snapshot, namespace: str, group: str, topic: str) -> None:
        route, of_topic = snapshot.groups.get((namespace, group)), snapshot.topics.get((namespace, topic))
        self._matcher = None if route is None or of_topic is None else Matcher(route, of_topic)
        self._group_id = 0 if route is None else route.group_id
        self._topic_id = 0 if of_topic is None else of_topic.topic_id
        self._gate = StressGate(snapshot)
        self._rules = snapshot.stress_rules.get(namespace, ())

    def fate_of(self, found: FoundMessage) -> Fate:
        """Return what would become of a message, were it published now."""
        message = Matched.of(found)
        if self._matcher is None:
            return Fate.NOT_ASKED_FOR
        is_wanted = bool(self._matcher.select((message,), _NEW_QUEUE))
        if not is_wanted and not self._matcher.paused_wanting(message, _NEW_QUEUE):
            return Fate.NOT_ASKED_FOR
        if is_stress(message.headers, self._rules) and not self._gate.allows(
            self._group_id, self._topic_id, message.event_code
        ):
            return Fate.WITHHELD
        return Fate.DELIVERED if is_wanted else Fate.WAITS

    def take_problem(self, subscription_id: int | None) -> str | None:
        """Return what that subscription's expression failed of on the last message; None: it did not."""
        failed = {} if self._matcher is None else self._matcher.take_failed()
        found = None if subscription_id is None else failed.get(subscription_id)
        return None if found is None else found.problem


def subscription_id_of(snapshot: Snapshot, namespace: str, group: str, topic: str, event_code: str) -> int | None:
    """Return which subscription it is; None: there is none."""
    route, of_topic = snapshot.groups.get((namespace, group)), snapshot.topics.get((namespace, topic))
    if route is None or of_topic is None:
        return None
    wanted = (of_topic.topic_id, event_code)
    ids = (each.subscription_id for each in route.subscriptions if (each.topic_id, each.event_code) == wanted)
    return next(ids, None)


@dataclass(slots=True)
class _Tally:
    """Adds up what becomes of each message."""

    looked_at: list[FoundMessage] = field(default_factory=list)
    counts: Counter[tuple[bool, bool]] = field(default_factory=Counter)
    """By whether it matches before, and after."""
    examples: dict[tuple[bool, bool], list[UUID]] = field(default_factory=dict)
    waits: int = 0
    withheld: int = 0
    failed_before: int = 0
    failed: int = 0
    failed_headers: Counter[str] = field(default_factory=Counter)

    def add(self, message: FoundMessage, before: Fate, after: Fate) -> None:
        """Count a message."""
        self.looked_at.append(message)
        matches = _matches(before), _matches(after)
        self.counts[matches] += 1
        examples = self.examples.setdefault(matches, [])
        if len(examples) < EXAMPLES_MAX:
            examples.append(message.id)
        self.waits += after is Fate.WAITS
        self.withheld += after is Fate.WITHHELD

    def add_failures(self, before: str | None, after: str | None) -> None:
        """Count whether the expression failed on it."""
        self.failed_before += before is not None
        if after is not None:
            self.failed += 1
            self.failed_headers[missing_header(after) or _OTHERWISE] += 1


def foretell(
    messages: Iterable[FoundMessage],
    before: GroupFates,
    after: GroupFates,
    *,
    is_over: Callable[[], bool],
    failing: tuple[int | None, int | None] = (None, None),
) -> Foretold:
    """Return what becomes of *messages*, the newest first, before and after; no more are looked at once *is_over*.

    *failing*: the subscription whose failures are counted, as it is before and after.
    """
    tally, copies, is_cut = _Tally(), 0, False
    for message in messages:
        if message.target_group is not None:
            copies += 1
            continue
        if is_over():
            is_cut = True
            break
        tally.add(message, before.fate_of(message), after.fate_of(message))
        tally.add_failures(before.take_problem(failing[0]), after.take_problem(failing[1]))
    return _told(tally, copies, is_cut=is_cut)


def _told(tally: _Tally, copies: int, *, is_cut: bool) -> Foretold:
    both, newly, no_longer = tally.counts[True, True], tally.counts[False, True], tally.counts[True, False]
    oldest_at, newest_at = span_of(tally.looked_at)
    return Foretold(
        looked_at=len(tally.looked_at),
        oldest_at=oldest_at,
        newest_at=newest_at,
        before=both + no_longer,
        after=both + newly,
        both=both,
        newly=newly,
        no_longer=no_longer,
        waits=tally.waits,
        withheld=tally.withheld,
        failed_before=tally.failed_before,
        failed=tally.failed,
        failed_headers=dict(tally.failed_headers.most_common(_FAILED_HEADERS_MAX)),
        newly_examples=tuple(tally.examples.get((False, True), ())),
        no_longer_examples=tuple(tally.examples.get((True, False), ())),
        copies=copies,
        is_cut=is_cut,
    )


def span_of(messages: Sequence[FoundMessage]) -> tuple[datetime | None, datetime | None]:
    """Return when the oldest and the newest of *messages* were stored."""
    if not messages:
        return None, None
    times = [message.stored_at_us for message in messages]
    return datetime_of(min(times)), datetime_of(max(times))


def _matches(fate: Fate) -> bool:
    return fate in {Fate.DELIVERED, Fate.WAITS}
