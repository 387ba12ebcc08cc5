"""Which of an instance's handlers get nothing as things are, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from confdb.routes import GroupRoute, Snapshot
from msgbroker.contract import names
from msgbroker.contract.errors import (
    EventCodeNotFoundError,
    NotUnderstoodError,
    SubscriptionNotFoundError,
    TopicNotFoundError,
)


class MissingType(NamedTuple):
    """A message type that has a handler and does not arrive."""

    topic: str
    event_code: str
    reason: str


def list_missing(snapshot: Snapshot, route: GroupRoute, handled: Iterable[tuple[str, str]]) -> list[MissingType]:
    """Return what there are handlers for, by topic and event code, and what the group will not get of it."""
    missing = []
    subscribed: defaultdict[int, set[str]] = defaultdict(set)
    for each in route.subscriptions:
        subscribed[each.topic_id].add(each.event_code)
    for topic_name, event_code in handled:
        reason = _why_missing(snapshot, route, subscribed, topic_name, event_code)
        if reason is not None:
            missing.append(MissingType(topic_name, event_code, reason))
    return missing


def _why_missing(
    snapshot: Snapshot, route: GroupRoute, subscribed: Mapping[int, set[str]], topic_name: str, event_code: str
) -> str | None:
    topic = snapshot.topics.get((route.namespace, topic_name))
    if topic is None:
        return TopicNotFoundError.reason
    is_any = event_code == names.ANY_EVENT_CODE
    if not (is_any or topic.is_open or event_code in topic.event_codes):
        return EventCodeNotFoundError.reason
    if topic.topic_id in snapshot.withheld.get(route.group_id, ()):
        return NotUnderstoodError.reason
    codes = subscribed.get(topic.topic_id, set())
    is_covered = bool(codes) if is_any else not codes.isdisjoint({event_code, names.ANY_EVENT_CODE})
    return None if is_covered else SubscriptionNotFoundError.reason
