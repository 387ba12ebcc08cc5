"""What of a configuration is not served, by name: for alarms, and for those who ask for it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Final

from confdb.routes import GroupRoute, NotUnderstood, TopicRoute, Unserved
from msgbroker.contract.names import DEFAULT_NAMESPACE

_SHOWN_CHARS_MAX: Final = 64


def unserved_without_name(kind: str, ids: Iterable[int], named_ids: Container[int]) -> Iterable[Unserved]:
    """Give the topics or groups that have no name or no namespace, so that nobody can ask for them."""
    for each in ids:
        if each not in named_ids:
            yield Unserved(f"{kind} {each}", NotUnderstood(problem="it has no name, or no namespace"))


def unserved_of(topics: Mapping[int, TopicRoute], groups: Iterable[GroupRoute]) -> Iterable[Unserved]:
    """Give the topics (by id), groups and subscriptions that are not understood."""
    for topic in topics.values():
        if topic.not_understood is not None:
            yield Unserved(name_topic(topic), topic.not_understood, topic_id=topic.topic_id)
    for group in groups:
        if group.not_understood is not None:
            yield Unserved(name_group(group), group.not_understood, group.group_id)
        for subscription in group.subscriptions:
            if subscription.not_understood is not None:
                of_topic = topics.get(subscription.topic_id)
                topic_name = str(subscription.topic_id) if of_topic is None else of_topic.name
                name = f"{group.name} {topic_name}/{subscription.event_code[:_SHOWN_CHARS_MAX]}"
                thing = named("subscription", group.namespace, name)
                yield Unserved(thing, subscription.not_understood, group.group_id, subscription.topic_id)


def name_topic(topic: TopicRoute) -> str:
    """Return what alarms and refusals call a topic."""
    return named("topic", topic.namespace, topic.name)


def name_group(group: GroupRoute) -> str:
    """Return what alarms and refusals call a subscriber group."""
    return named("group", group.namespace, group.name)


def named(kind: str, namespace: str, name: str) -> str:
    """Return what alarms and refusals call a thing."""
    return f"{kind} {name}" if namespace == DEFAULT_NAMESPACE else f"{kind} {name} of namespace {namespace}"
