"""Names for the ids that figures have: what was deleted since is told by its name then, and by its id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from confdb.deleted import DeletedThing, DeletedThings, read_deleted
from confdb.routes import GroupRoute, Snapshot, TopicRoute
from confdb.snapshot import load_snapshot
from msgconsole.operations.figures.wanted import WantedFigures
from msgconsole.operations.stores import Stores

_STILL_COUNTED: Final = timedelta(days=1)
"""For so long brokers may go on counting for what was deleted, at the very most."""


class FigureNames:
    """What the configuration calls topics and groups, or called them until they were deleted."""

    def __init__(self, snapshot: Snapshot, deleted: DeletedThings) -> None:
        self._snapshot = snapshot
        self._deleted = deleted
        self._topics: Mapping[int, TopicRoute | DeletedThing] = {
            **deleted.topics,
            **{topic.topic_id: topic for topic in snapshot.topics.values()},
        }
        self._groups: Mapping[int, GroupRoute | DeletedThing] = {
            **deleted.groups,
            **{group.group_id: group for group in snapshot.groups.values()},
        }

    @property
    def knows_all_deleted(self) -> bool:
        """Whether nothing that was deleted since is left out."""
        return self._deleted.is_whole

    def topic(self, topic_id: int) -> str:
        """Return a topic's name."""
        return _called("topic", topic_id, self._topics.get(topic_id))

    def group(self, group_id: int) -> str:
        """Return a group's name."""
        return _called("group", group_id, self._groups.get(group_id))

    def namespace_of(self, topic_id: int) -> str:
        """Return the namespace of a topic; empty where nothing is known of it."""
        topic = self._topics.get(topic_id)
        return topic.namespace if topic is not None else ""

    def topic_ids(self, wanted: WantedFigures) -> Sequence[int] | None:
        """Return the topics that are asked for; None: all."""
        if wanted.topic is None and wanted.namespace is None:
            return None
        return _meant(self._topics, wanted.namespace, wanted.topic)

    def group_ids(self, wanted: WantedFigures) -> Sequence[int] | None:
        """Return the groups that are asked for; None: all of these topics."""
        return None if wanted.group is None else _meant(self._groups, wanted.namespace, wanted.group)

    def check_known(self, wanted: WantedFigures) -> None:
        """Raise NotFoundError where *wanted* names what is not registered, nor was when it was counted."""
        things = [*self._deleted.topics.values(), *self._deleted.groups.values()]
        is_known = (
            wanted.namespace in {None, *self._snapshot.namespaces, *(thing.namespace for thing in things)}
            and (wanted.topic is None or bool(self.topic_ids(wanted)))
            and (wanted.group is None or bool(self.group_ids(wanted)))
        )
        if not is_known:
            wanted.check_registered(self._snapshot)


async def read_names(stores: Stores, wanted: WantedFigures, since: datetime) -> FigureNames:
    """Return the names of all that was counted since then.

    Raises NotFoundError where *wanted* names what is not registered, nor was then.
    """
    # In this order: what is deleted meanwhile is in both, and not in neither.
    snapshot = await load_snapshot(stores.config)
    names = FigureNames(snapshot, await read_deleted(stores.config, since - _STILL_COUNTED))
    names.check_known(wanted)
    return names


def _called(kind: str, thing_id: int, thing: TopicRoute | GroupRoute | DeletedThing | None) -> str:
    if thing is None:
        return f"(deleted {kind} {thing_id})"
    # Another of that name may be registered by now.
    return f"{thing.name} (deleted {kind} {thing_id})" if isinstance(thing, DeletedThing) else thing.name


def _meant(
    things: Mapping[int, TopicRoute | DeletedThing] | Mapping[int, GroupRoute | DeletedThing],
    namespace: str | None,
    name: str | None,
) -> list[int]:
    return [
        thing_id
        for thing_id, thing in things.items()
        if name in {None, thing.name} and namespace in {None, thing.namespace}
    ]
