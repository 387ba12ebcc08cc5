"""Stress-test traffic: how it is recognised, and who may see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import assert_never

from confdb.routes import Snapshot, StressOperator, StressRule
from msgbroker.contract.names import ANY_EVENT_CODE


def is_stress(headers: Mapping[str, str], rules: Iterable[StressRule]) -> bool:
    """Return whether one of *rules* marks a message with these headers as stress traffic."""
    if not headers:
        return False
    return any(_marks(rule, headers.get(rule.header)) for rule in rules)


def _marks(rule: StressRule, value: str | None) -> bool:
    if value is None:
        return False
    if rule.operator is StressOperator.EQUALS:
        return value == rule.value
    if rule.operator is StressOperator.PREFIX:
        return value.startswith(rule.value)
    if rule.operator is StressOperator.EXISTS:
        return True
    assert_never(rule.operator)


class StressGate:
    """Which groups may see which stress messages, by one snapshot. Make one for each snapshot and share it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def allows(self, group_id: int, topic_id: int, event_code: str) -> bool:
        """Return whether the group may be handed a stress message of that type now."""
        whitelist = self._snapshot.stress_whitelist
        if (group_id, topic_id, event_code) not in whitelist and (group_id, topic_id, ANY_EVENT_CODE) not in whitelist:
            return False
        return topic_id not in self._refusing_topics

    @cached_property
    def _refusing_topics(self) -> frozenset[int]:
        # The kill switch. Looked up at the first stress message that is on the whitelist: most snapshots see none.
        return frozenset(topic.topic_id for topic in self._snapshot.topics.values() if topic.stress_refused)
