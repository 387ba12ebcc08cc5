"""From rows to routes: what of each row this version can read, and whether it understands all of it.

No row makes this fail. A later version, or somebody's own hand, may have written what this one would not. A row that
requires a feature of a later version, or has a value that is not known or not carried out here, or one that could not
be used at all (an expression that does not compile, broken JSON, a number beyond every limit), becomes a route that
says so in `not_understood`, and is not served: to serve it by guesswork would lose messages, or end the broker.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from confdb.expressions.compiled import compile_expression, cost_of_expression
from confdb.features import Aspect, ChoiceT, feature_of, known_or_text
from confdb.routes import (
    GroupMode,
    GroupOrder,
    GroupRoute,
    HeaderPredicate,
    NotUnderstood,
    StressOperator,
    StressRule,
    SubscriptionMode,
    SubscriptionRoute,
    TopicKind,
    TopicRoute,
    Unserved,
)
from confdb.unserved import named
from msgbroker.contract import limits
from msgbroker.contract.errors import InvalidExpressionError, InvalidNameError
from msgbroker.contract.names import ANY_EVENT_CODE, check_event_code

Row = sa.Row[*tuple[Any, ...]]

_GENERATIONS_MAX: Final = 2**31 - 1
_OFFSETS_MAX: Final = 2**63 - 1
_ID_CHARS_MAX: Final = 19
_SHOWN_CHARS_MAX: Final = 64
_TOPIC_ID: Final = 2
"""Where topic_id is in a row of a subscription."""


class _Reading:
    """The reading of one row: what it requires, and what of it cannot be used here."""

    def __init__(self, requires: str | None) -> None:
        self.requires: set[str] = set() if requires is None else set(requires.split(","))
        self._problems: list[str] = []

    def choose(self, aspect: Aspect, kind: type[ChoiceT], value: str | None) -> ChoiceT | str:
        """Return the choice; one beyond the first version is a feature that the row requires."""
        if value is None:
            self.note(f"{aspect} is missing")
            return ""
        feature = feature_of(aspect, value)
        if feature is not None:
            self.requires.add(feature)
        return known_or_text(kind, value)

    def check(self, name: str, value: float | None, least: float, most: float) -> None:
        """Note a number that is out of its bounds: dividing by it, waiting for it or storing it would fail."""
        if value is None:
            self.note(f"{name} is missing")
        # Put so that it is refused when it is not a number at all (NaN).
        elif not least <= value <= most:
            self.note(f"{name} is {value:g}; {least:g} to {most:g} is allowed")

    def note(self, problem: str) -> None:
        """Note a problem of the row: it cannot be used."""
        self._problems.append(problem)

    def outcome(self, understood: frozenset[str]) -> NotUnderstood | None:
        """Return why the thing is not served; None: it is."""
        features = tuple(sorted(self.requires - understood))
        if not features and not self._problems:
            return None
        return NotUnderstood(features, "; ".join(self._problems))


def read_topic(
    namespace: str, row: tuple[Any, ...], event_codes: frozenset[str], understood: frozenset[str]
) -> TopicRoute:
    """Return the route of a topic; what cannot be read of its row is in `not_understood`."""
    topic_id, _, name, kind, queue_count, generation, body_bytes_max, *others = row
    is_open, is_closed, stress_refused, trace_rate, requires = others
    reading = _Reading(requires)
    known_kind = reading.choose(Aspect.TOPIC_KIND, TopicKind, kind)
    reading.check("queue_count", queue_count, 1, limits.QUEUES_MAX)
    reading.check("generation", generation, 1, _GENERATIONS_MAX)
    reading.check("body_bytes_max", body_bytes_max, 1, limits.BODY_BYTES_CEILING)
    reading.check("trace_rate", trace_rate, 0.0, 1.0)
    return TopicRoute(
        topic_id=topic_id,
        namespace=namespace,
        name=name,
        kind=known_kind,
        queue_count=queue_count,
        generation=generation,
        body_bytes_max=body_bytes_max,
        is_open=is_open,
        is_closed=is_closed,
        stress_refused=stress_refused,
        event_codes=event_codes,
        requires=frozenset(reading.requires),
        not_understood=reading.outcome(understood),
        trace_rate=trace_rate,
    )


def read_group(
    namespace: str, row: tuple[Any, ...], subscriptions: tuple[tuple[Any, ...], ...], understood: frozenset[str]
) -> GroupRoute:
    """Return the subscriber group with its subscriptions."""
    group_id, _, name, ack_timeout_seconds, handle_seconds_max, schedule, *others = row
    attempts_max, unsettled_max, order, mode, paused, requires = others
    reading = _Reading(requires)
    known_order = reading.choose(Aspect.GROUP_ORDER, GroupOrder, order)
    known_mode = reading.choose(Aspect.GROUP_MODE, GroupMode, mode)
    least, most = limits.ACK_TIMEOUT_SECONDS_MIN, limits.ACK_TIMEOUT_SECONDS_MAX
    reading.check("ack_timeout_seconds", ack_timeout_seconds, least, most)
    reading.check("handle_seconds_max", handle_seconds_max, 0.0, limits.HANDLE_SECONDS_CEILING)
    reading.check("attempts_max", attempts_max, 1, limits.ATTEMPTS_MAX_CEILING)
    reading.check("unsettled_max", unsettled_max, 1, limits.CREDIT_MAX)
    of_topics = [subscription for subscription in subscriptions if type(subscription[_TOPIC_ID]) is int]
    if len(of_topics) < len(subscriptions):
        # Perhaps it is to all topics: then no lane of the group would be matched rightly.
        reading.note("a subscription names no topic")
    return GroupRoute(
        group_id=group_id,
        namespace=namespace,
        name=name,
        ack_timeout_seconds=ack_timeout_seconds,
        retry_schedule_seconds=_read_schedule(reading, schedule),
        attempts_max=attempts_max,
        unsettled_max=unsettled_max,
        order=known_order,
        mode=known_mode,
        paused=paused,
        handle_seconds_max=handle_seconds_max,
        subscriptions=tuple(_read_subscription(subscription, understood) for subscription in of_topics),
        requires=frozenset(reading.requires),
        not_understood=reading.outcome(understood),
    )


def _read_schedule(reading: _Reading, text: str | None) -> tuple[float, ...]:
    """Return the waits of an array of numbers in PostgreSQL's notation."""
    try:
        waits_seconds = tuple(float(seconds) for seconds in (text or "NULL").strip("{}").split(",") if seconds)
    except ValueError:
        # It, or an element, is NULL, or there is more than one dimension.
        reading.note("retry_schedule_seconds is not a list of numbers")
        return ()
    reading.check("retry_schedule_seconds: its length", len(waits_seconds), 0, limits.ATTEMPTS_MAX_CEILING - 1)
    for wait_seconds in waits_seconds:
        reading.check("retry_schedule_seconds", wait_seconds, 0, limits.RETRY_DELAY_SECONDS_MAX)
    return waits_seconds


def _read_subscription(row: tuple[Any, ...], understood: frozenset[str]) -> SubscriptionRoute:
    subscription_id, _, topic_id, event_code, mode, expression, start_offsets, requires, paused = row
    reading = _Reading(requires)
    known_mode = reading.choose(Aspect.SUBSCRIPTION_MODE, SubscriptionMode, mode)
    if not _is_event_code_or_any(event_code):
        # Perhaps a pattern: taken for a name it would match nothing, and settle every message as not wanted.
        reading.note("event_code is neither a name nor *")
    if known_mode is SubscriptionMode.DIRECT and expression is not None:
        reading.note("expression is given, but the mode is DIRECT")
    predicate, cost = _read_expression(reading, expression) if known_mode is SubscriptionMode.HEADER else (None, 0)
    return SubscriptionRoute(
        subscription_id=subscription_id,
        topic_id=topic_id,
        event_code=event_code or "",
        mode=known_mode,
        expression=expression,
        predicate=predicate,
        start_offsets=MappingProxyType(_read_offsets(reading, start_offsets)),
        cost=cost,
        requires=frozenset(reading.requires),
        not_understood=reading.outcome(understood),
        paused=paused,
    )


def _read_expression(reading: _Reading, expression: str | None) -> tuple[HeaderPredicate | None, int]:
    """Return what the expression compiles to, and its cost: no limit applies to what is registered."""
    if expression is None:
        reading.note("expression is missing, but the mode is HEADER")
        return None, 0
    try:
        return compile_expression(expression), cost_of_expression(expression).steps
    except InvalidExpressionError as error:
        # It compiled when it was registered: another version of the compiler, or another hand.
        reading.note(error.message)
    except Exception as error:  # noqa: BLE001 - the compiler's: what it is nobody knows, and one row must not matter
        reading.note(f"expression: {type(error).__name__}: {error}")
    return None, 0


def _read_offsets(reading: _Reading, text: str | None) -> dict[int, int]:
    try:
        offsets = json.loads(text or "null")
    except (ValueError, RecursionError):
        # The database knows that it is JSON; but numbers may be longer, and lists deeper, than Python takes.
        offsets = None
    read = readable_offsets(offsets)
    if read is None:
        reading.note("start_offsets is not an object of an offset for each queue")
    return read or {}


def readable_offsets(offsets: Any) -> dict[int, int] | None:
    """Return the start offsets by queue_id; None where they are nothing of the kind."""
    if not isinstance(offsets, dict) or not all(map(_is_offset_of_queue, offsets.items())):
        return None
    return {int(queue_id): offset for queue_id, offset in offsets.items()}


def _is_offset_of_queue(entry: tuple[str, Any]) -> bool:
    queue_id, offset = entry
    is_id = queue_id.isascii() and queue_id.isdigit() and len(queue_id) <= _ID_CHARS_MAX
    return is_id and type(offset) is int and 0 <= offset <= _OFFSETS_MAX


def _is_event_code_or_any(event_code: str | None) -> bool:
    try:
        return event_code == ANY_EVENT_CODE or bool(check_event_code(event_code or ""))
    except InvalidNameError:
        return False


class StressRules(NamedTuple):
    """The stress rules of all namespaces, as they were read."""

    rules: Mapping[str, tuple[StressRule, ...]]
    unknown_headers: Mapping[str, Mapping[str, NotUnderstood]]
    """The headers of rules that are not understood, by namespace."""
    unserved: Sequence[Unserved]


def read_stress_rules(
    rows: Iterable[Row], namespace_names: Mapping[int, str], understood: frozenset[str]
) -> StressRules:
    """Return the stress rules of all namespaces; what cannot be read is told apart."""
    rules: defaultdict[str, list[StressRule]] = defaultdict(list)
    unknown_headers: defaultdict[str, dict[str, NotUnderstood]] = defaultdict(dict)
    unserved: list[Unserved] = []
    for row in rows:
        reading = _Reading(None)
        operator = reading.choose(Aspect.STRESS_OPERATOR, StressOperator, row.operator)
        namespace = namespace_names.get(row.namespace_id, "")
        if row.header is None or row.value is None:
            reading.note("header or value is missing")
        why = reading.outcome(understood)
        if isinstance(operator, StressOperator) and why is None:
            rules[namespace].append(StressRule(header=row.header, operator=operator, value=row.value))
            continue
        why = why or NotUnderstood(problem=f"operator is {operator[:_SHOWN_CHARS_MAX]!r}")
        unknown_headers[namespace][row.header] = why
        unserved.append(Unserved(named("stress rule for header", namespace, row.header), why))
    return StressRules(
        {namespace: tuple(of_namespace) for namespace, of_namespace in rules.items()},
        {namespace: MappingProxyType(headers) for namespace, headers in unknown_headers.items()},
        unserved,
    )


def unserved_of_whitelist(entries: Iterable[tuple[int, int, str | None]]) -> Iterable[Unserved]:
    """Give the whitelist entries that name no message type: they allow nothing."""
    for group_id, topic_id, event_code in entries:
        if not _is_event_code_or_any(event_code):
            why = NotUnderstood(problem="event_code is neither a name nor *: it allows nothing")
            shown = (event_code or "")[:_SHOWN_CHARS_MAX]
            thing = f"stress whitelist entry {shown!r} of group {group_id}, topic {topic_id}"
            yield Unserved(thing, why, group_id, topic_id)
