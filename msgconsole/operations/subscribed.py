"""Which group or topic is meant, and the topics that a group subscribes to: of others it has no lanes."""

from __future__ import annotations

from confdb.routes import GroupRoute, Snapshot, TopicRoute
from msgbroker.contract.errors import (
    GroupNotFoundError,
    NamespaceNotFoundError,
    SubscriptionNotFoundError,
    TopicNotFoundError,
)


def get_group(snapshot: Snapshot, namespace: str, name: str) -> GroupRoute:
    """Return a group. Raises GroupNotFoundError."""
    group = snapshot.groups.get((namespace, name))
    if group is None:
        raise GroupNotFoundError(namespace, name)
    return group


def get_topic(snapshot: Snapshot, namespace: str, name: str) -> TopicRoute:
    """Return a topic. Raises TopicNotFoundError."""
    topic = snapshot.topics.get((namespace, name))
    if topic is None:
        raise TopicNotFoundError(namespace, name)
    return topic


def get_subscribed_topic(snapshot: Snapshot, group: GroupRoute, name: str) -> TopicRoute:
    """Return a topic that a group subscribes to. Raises TopicNotFoundError, SubscriptionNotFoundError."""
    topic = get_topic(snapshot, group.namespace, name)
    if all(subscription.topic_id != topic.topic_id for subscription in group.subscriptions):
        raise SubscriptionNotFoundError(group.name, name, "*")
    return topic


def check_registered(
    snapshot: Snapshot, namespace: str | None, *, group: str | None = None, topic: str | None = None
) -> None:
    """Raise NamespaceNotFoundError, GroupNotFoundError or TopicNotFoundError where there is no such thing.

    Without a *namespace* one that has it will do.
    """
    if namespace is not None and namespace not in snapshot.namespaces:
        raise NamespaceNotFoundError(namespace)
    namespaces = snapshot.namespaces if namespace is None else (namespace,)
    if group is not None and not any((each, group) in snapshot.groups for each in namespaces):
        raise GroupNotFoundError(namespace or "", group)
    if topic is not None and not any((each, topic) in snapshot.topics for each in namespaces):
        raise TopicNotFoundError(namespace or "", topic)


def subscribed_topics(snapshot: Snapshot, group: GroupRoute, name: str | None = None) -> list[TopicRoute]:
    """Return the topics that a group subscribes to, or the one that is named.

    Raises TopicNotFoundError, SubscriptionNotFoundError.
    """
    if name is not None:
        return [get_subscribed_topic(snapshot, group, name)]
    topic_ids = {subscription.topic_id for subscription in group.subscriptions}
    return [topic for _, topic in sorted(snapshot.topics.items()) if topic.topic_id in topic_ids]


def start_of(group: GroupRoute, topic: TopicRoute, queue_id: int) -> int:
    """Return where the group's lane of a queue begins that nobody ever served: with its earliest subscription."""
    starts = (s.start_offsets.get(queue_id, 0) for s in group.subscriptions if s.topic_id == topic.topic_id)
    return min(starts, default=0)
