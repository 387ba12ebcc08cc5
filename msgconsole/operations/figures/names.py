"""Names for the ids that figures have: what was deleted since is told by its id."""

from __future__ import annotations

from collections.abc import Sequence

from confdb.routes import Snapshot
from msgconsole.operations.figures.lag import LagOf


class FigureNames:
    """What the configuration calls topics and groups."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._topics = {topic.topic_id: topic for topic in snapshot.topics.values()}
        self._groups = {group.group_id: group for group in snapshot.groups.values()}

    def topic(self, topic_id: int) -> str:
        """Return a topic's name."""
        topic = self._topics.get(topic_id)
        return topic.name if topic is not None else f"(deleted topic {topic_id})"

    def group(self, group_id: int) -> str:
        """Return a group's name."""
        group = self._groups.get(group_id)
        return group.name if group is not None else f"(deleted group {group_id})"

    def namespace_of(self, topic_id: int) -> str:
        """Return the namespace of a topic; empty where it was deleted."""
        topic = self._topics.get(topic_id)
        return topic.namespace if topic is not None else ""

    def topic_ids(self, wanted: LagOf) -> Sequence[int] | None:
        """Return the topics that are asked for; None: all, those that were deleted included."""
        if wanted.topic is None and wanted.namespace is None:
            return None
        return [
            topic_id
            for topic_id, topic in self._topics.items()
            if wanted.topic in {None, topic.name} and wanted.namespace in {None, topic.namespace}
        ]

    def group_ids(self, wanted: LagOf) -> Sequence[int] | None:
        """Return the groups that are asked for; None: all of these topics."""
        if wanted.group is None:
            return None
        return [
            group_id
            for group_id, group in self._groups.items()
            if group.name == wanted.group and wanted.namespace in {None, group.namespace}
        ]
