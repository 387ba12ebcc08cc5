"""What is registered with an in-memory center, as the snapshot that the engine routes by."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from confdb.routes import (
    GroupMode,
    GroupOrder,
    GroupRoute,
    HeaderPredicate,
    Snapshot,
    StressOperator,
    StressRule,
    SubscriptionMode,
    SubscriptionRoute,
    TopicKind,
    TopicRoute,
)
from confdb.setting_bounds import (
    check_ack_timeout,
    check_attempts_max,
    check_body_bytes_max,
    check_handle_seconds_max,
    check_queue_count,
    check_retry_schedule,
    check_unsettled_max,
)
from msgbroker.client.values.texts import check_encodable
from msgbroker.contract import limits
from msgbroker.contract.errors import (
    BeginningPassedError,
    EventCodeNotFoundError,
    GroupNotFoundError,
    NotFoundError,
    SubscriptionDiffersError,
    TopicNotFoundError,
)
from msgbroker.contract.names import ANY_EVENT_CODE, check_event_code, check_group, check_topic

QUEUES_PER_TOPIC_MAX = limits.QUEUES_MAX
_DEFAULT_RULE = StressRule("x-stress-test", StressOperator.EQUALS, "true")


class Registry:
    """Topics, groups, subscriptions and the stress whitelist of one namespace."""

    def __init__(self, namespace: str, *, is_strict: bool) -> None:
        self.is_strict = is_strict
        self.is_explicit = False
        """Whether the test registered something itself: then it means to register all it uses."""
        self._namespace = namespace
        self._next_id = 1
        self.snapshot = Snapshot(1, namespaces=frozenset({namespace}), stress_rules={namespace: (_DEFAULT_RULE,)})

    @property
    def takes_unknown(self) -> bool:
        """Whether names that are used without being registered register themselves."""
        return not (self.is_strict or self.is_explicit)

    def find_topic(self, name: str) -> TopicRoute | None:
        """Return a topic, if it is registered."""
        return self.snapshot.topics.get((self._namespace, name))

    def get_topic(self, name: str) -> TopicRoute:
        """Return a topic, or raise TopicNotFoundError."""
        topic = self.find_topic(name)
        if topic is None:
            raise self._hinted(TopicNotFoundError(self._namespace, name))
        return topic

    def check_event_code_of(self, topic: TopicRoute, event_code: str) -> None:
        """Raise EventCodeNotFoundError unless the topic has the event code, or takes any."""
        if not (topic.is_open or event_code == ANY_EVENT_CODE or event_code in topic.event_codes):
            raise self._hinted(EventCodeNotFoundError(topic.name, event_code))

    def find_group(self, name: str) -> GroupRoute | None:
        """Return a group, if it is registered."""
        return self.snapshot.groups.get((self._namespace, name))

    def get_group(self, name: str) -> GroupRoute:
        """Return a group, or raise GroupNotFoundError."""
        group = self.find_group(name)
        if group is None:
            raise self._hinted(GroupNotFoundError(self._namespace, name))
        return group

    def put_topic(
        self,
        name: str,
        event_codes: Sequence[str],
        *,
        queue_count: int | None = None,
        body_bytes_max: int | None = None,
        is_open: bool | None = None,
        is_closed: bool | None = None,
        stress_refused: bool | None = None,
    ) -> TopicRoute:
        """Register a topic, or change what is given of its settings and add event codes."""
        before = self.find_topic(check_topic(name)) or self._new_topic(name)
        given = _given(
            queue_count=None if queue_count is None else check_queue_count(queue_count),
            body_bytes_max=None if body_bytes_max is None else check_body_bytes_max(body_bytes_max),
            is_open=is_open,
            is_closed=is_closed,
            stress_refused=stress_refused,
        )
        codes = before.event_codes | {check_event_code(code) for code in event_codes}
        topic = dataclasses.replace(before, event_codes=codes, **given)
        self._change(topics={**self.snapshot.topics, (self._namespace, name): topic})
        return topic

    def _new_topic(self, name: str) -> TopicRoute:
        return TopicRoute(
            topic_id=self._new_id(),
            namespace=self._namespace,
            name=name,
            kind=TopicKind.NORMAL,
            queue_count=1,
            generation=1,
            body_bytes_max=limits.BODY_BYTES_DEFAULT,
            is_open=False,
            is_closed=False,
            stress_refused=False,
            event_codes=frozenset(),
        )

    def add_event_code(self, topic: TopicRoute, event_code: str) -> None:
        """Add an event code to a topic."""
        more = dataclasses.replace(topic, event_codes=topic.event_codes | {check_event_code(event_code)})
        self._change(topics={**self.snapshot.topics, (self._namespace, topic.name): more})

    def put_group(
        self,
        name: str,
        *,
        ack_timeout_seconds: float | None = None,
        handle_seconds_max: float | None = None,
        retry_schedule_seconds: Sequence[float] | None = None,
        attempts_max: int | None = None,
        unsettled_max: int | None = None,
    ) -> GroupRoute:
        """Register a subscriber group, or change what is given of its settings.

        A new retry schedule takes `attempts_max` along if that followed the old one, as with a broker.
        """
        before = self.find_group(check_group(name)) or self._new_group(name)
        schedule = None if retry_schedule_seconds is None else tuple(check_retry_schedule(retry_schedule_seconds))
        if schedule is not None and attempts_max is None:
            follows = before.attempts_max == len(before.retry_schedule_seconds) + 1
            attempts_max = len(schedule) + 1 if follows else None
        given = _given(
            ack_timeout_seconds=None if ack_timeout_seconds is None else check_ack_timeout(ack_timeout_seconds),
            handle_seconds_max=None if handle_seconds_max is None else check_handle_seconds_max(handle_seconds_max),
            retry_schedule_seconds=schedule,
            attempts_max=None if attempts_max is None else check_attempts_max(attempts_max),
            unsettled_max=None if unsettled_max is None else check_unsettled_max(unsettled_max),
        )
        group = dataclasses.replace(before, **given)
        self._put(group)
        return group

    def _new_group(self, name: str) -> GroupRoute:
        return GroupRoute(
            group_id=self._new_id(),
            namespace=self._namespace,
            name=name,
            ack_timeout_seconds=limits.ACK_TIMEOUT_SECONDS_DEFAULT,
            retry_schedule_seconds=limits.RETRY_SCHEDULE_SECONDS_DEFAULT,
            attempts_max=len(limits.RETRY_SCHEDULE_SECONDS_DEFAULT) + 1,
            unsettled_max=limits.UNSETTLED_MAX_DEFAULT,
            order=GroupOrder.NONE,
            mode=GroupMode.SHARED,
            paused=False,
            subscriptions=(),
        )

    def remove_group(self, name: str) -> None:
        """Remove a subscriber group with its subscriptions."""
        groups = {key: group for key, group in self.snapshot.groups.items() if key != (self._namespace, name)}
        self._change(groups=groups)

    def put_publisher_group(self, name: str) -> None:
        """Register a publisher group."""
        known = self.snapshot.publisher_groups
        self._change(publisher_groups=known | {(self._namespace, check_group(name))})

    def check_publisher_group(self, name: str) -> None:
        """Raise GroupNotFoundError unless messages of that publisher group are taken, or of none (empty)."""
        known = self.snapshot.publisher_groups
        if name and (known or self.is_strict) and (self._namespace, name) not in known:
            raise self._hinted(GroupNotFoundError(self._namespace, name, "publisher"))

    def add_subscription(
        self, group_name: str, topic_name: str, event_code: str, expression: str, start_offsets: Mapping[int, int]
    ) -> bool:
        """Register a subscription; return False if the group has it already."""
        group, topic = self.get_group(group_name), self.get_topic(topic_name)
        if _is_subscribed(group, topic, event_code):
            self.refuse_other_expression(group_name, topic_name, event_code, expression)
            return False
        subscription = SubscriptionRoute(
            subscription_id=self._new_id(),
            topic_id=topic.topic_id,
            event_code=event_code,
            mode=SubscriptionMode.HEADER if expression else SubscriptionMode.DIRECT,
            expression=expression or None,
            predicate=compile_header(expression) if expression else None,
            start_offsets=start_offsets,
        )
        self._put(dataclasses.replace(group, subscriptions=(*group.subscriptions, subscription)))
        return True

    def refuse_new_subscription(self, group_name: str, topic_name: str, event_code: str) -> None:
        """Raise BeginningPassedError unless the group has the subscription: it is past the topic's beginning."""
        if not _is_subscribed(self.get_group(group_name), self.get_topic(topic_name), event_code):
            raise BeginningPassedError(group_name, topic_name)

    def refuse_other_expression(self, group_name: str, topic_name: str, event_code: str, expression: str) -> None:
        """Raise SubscriptionDiffersError if the subscription exists with another expression."""
        group, topic = self.find_group(group_name), self.find_topic(topic_name)
        if group is None or topic is None:
            return
        for found in group.subscriptions:
            is_same_type = (found.topic_id, found.event_code) == (topic.topic_id, event_code)
            if is_same_type and found.expression != (expression or None):
                raise SubscriptionDiffersError(group_name, topic_name, event_code, found.expression, expression)

    def set_stress_allowed(self, group_name: str, topic_name: str, event_code: str, *, is_allowed: bool) -> None:
        """Put a group on the whitelist of a message type, or take it off."""
        entry = frozenset({(self.get_group(group_name).group_id, self.get_topic(topic_name).topic_id, event_code)})
        whitelist = self.snapshot.stress_whitelist
        self._change(stress_whitelist=whitelist | entry if is_allowed else whitelist - entry)

    def _hinted(self, error: NotFoundError) -> NotFoundError:
        if self.is_explicit and not self.is_strict:
            error.add_note(
                "The test registers names, so this InMemoryCenter makes up none: register all that is used, or none"
            )
        return error

    def _put(self, group: GroupRoute) -> None:
        self._change(groups={**self.snapshot.groups, (self._namespace, group.name): group})

    def _change(self, **changes: Any) -> None:
        self.snapshot = dataclasses.replace(self.snapshot, version=self.snapshot.version + 1, **changes)

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1


def _given(**settings: Any) -> dict[str, Any]:
    """Return the settings that are not None."""
    return {name: value for name, value in settings.items() if value is not None}


def _is_subscribed(group: GroupRoute, topic: TopicRoute, event_code: str) -> bool:
    return any((s.topic_id, s.event_code) == (topic.topic_id, event_code) for s in group.subscriptions)


def queue_ids_of(topic: TopicRoute) -> range:
    """Return the ids of a topic's queues."""
    first = topic.topic_id * QUEUES_PER_TOPIC_MAX
    return range(first, first + topic.queue_count)


def warnings_of_header(expression: str) -> Sequence[str]:
    """Return what a broker would say of a HEADER expression that compiles."""
    from confdb.expressions.compiled import warnings_about

    return warnings_about(expression)


def compile_header(expression: str) -> HeaderPredicate:
    """Return a HEADER expression as a predicate, or raise InvalidExpressionError or ExpressionTooCostlyError.

    Raises ModuleNotFoundError where the CEL library is not installed.
    """
    # Here and not above: only tests with HEADER subscriptions need the CEL library.
    try:
        from confdb.expressions.cost_limits import check_expression
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "an InMemoryCenter needs more for HEADER expressions: pip install 'msgcenter[testing]'", name=error.name
        ) from error
    return check_expression(check_encodable(expression))
