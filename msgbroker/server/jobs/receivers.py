"""Whether a message can be delivered to a group again, by the configuration of the moment, and by which route."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from confdb.routes import GroupRoute, Snapshot, TopicRoute
from msgbroker.contract.errors import (
    GroupNotFoundError,
    MessageCenterError,
    SubscriptionNotFoundError,
    TopicNotFoundError,
)


class Receiver(NamedTuple):
    """A group that gets something again, and what is known of it."""

    group: GroupRoute
    topic_ids: frozenset[int]
    """The topics that it subscribes to: of others it has no lanes, and a message would lie there for good."""


class Receivers:
    """Looks groups up by their ids, and topics by their names: once for each snapshot."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._known: Snapshot | None = None
        self._groups: dict[int, Receiver] = {}

    def route(self, group_id: int, group_name: str, namespace: str, topic: str) -> TopicRoute | MessageCenterError:
        """Return the topic's route, or why the group cannot get a message of it."""
        snapshot = self._snapshot()
        if snapshot is not self._known:
            self._known = snapshot
            self._groups = {
                group.group_id: Receiver(group, frozenset(each.topic_id for each in group.subscriptions))
                for group in snapshot.groups.values()
            }
        receiver = self._groups.get(group_id)
        if receiver is None:
            return GroupNotFoundError(namespace, group_name)
        route = snapshot.topics.get((namespace, topic))
        if route is None:
            return TopicNotFoundError(namespace, topic)
        if route.topic_id not in receiver.topic_ids:
            return SubscriptionNotFoundError(receiver.group.name, topic, "*")
        return route
