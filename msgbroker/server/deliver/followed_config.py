"""The configuration that delivery goes by: what a new snapshot does to the groups here, and to what leaves.

All of it happens in the moment in which the snapshot is taken over. Whatever is handed out afterwards is matched, and
permitted, by the new one; and what is already being written is held against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from confdb.routes import GroupRoute, Snapshot, TopicRoute
from confdb.unserved import name_group
from msgbroker.contract.errors import GroupNotFoundError, UnavailableError
from msgbroker.server.alarms.not_understood import refusal
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.lanes.rules import stress_check
from msgbroker.server.deliver.outgoing import Outgoing

_NO_TOPICS: Final[frozenset[int]] = frozenset()


class FollowedConfig:
    """The snapshot that all groups here follow, from the first one on."""

    def __init__(self, groups: Mapping[int, GroupDelivery], outgoing: Outgoing) -> None:
        self._groups = groups
        self._outgoing = outgoing
        self._snapshot: Snapshot | None = None
        self.topics: dict[int, TopicRoute] = {}
        """The topics of the snapshot by their ids."""

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that is followed. There is one before the first lane is opened."""
        assert self._snapshot is not None
        return self._snapshot

    def withheld_of(self, group_id: int) -> frozenset[int]:
        """Return the topics of which a group is served nothing here: something of them is not understood."""
        return _NO_TOPICS if self._snapshot is None else self._snapshot.withheld.get(group_id, _NO_TOPICS)

    def follow(self, snapshot: Snapshot) -> None:
        """Go by another snapshot: the routes of the groups here, and those that are gone."""
        self._snapshot = snapshot
        self.topics = {topic.topic_id: topic for topic in snapshot.topics.values()}
        routes = {route.group_id: route for route in snapshot.groups.values()}
        # A copy: one whose only lane fails at this is gone afterwards.
        for group in list(self._groups.values()):
            # Of every lane, stopped ones too: what is on its way out is held against it, whoever is served.
            for owned in group.lanes_and_trials():
                owned.may_hand_out = stress_check(group.route, owned.topic, snapshot)
            route = routes.get(group.route.group_id)
            if route is not None:
                self._follow_route(group, route)
                continue
            # Deleted: its streams end with the reason, and the cluster loop gives its lanes up.
            for instance in list(group.instances.values()):
                instance.close(GroupNotFoundError(group.route.namespace, group.route.name))
        # Last: what is being written is held against what was just made current.
        self._outgoing.follow(snapshot.version)

    def refuse_all(self, because: UnavailableError) -> None:
        """Serve no group until a snapshot is followed again: what is known of the configuration does not hold."""
        for group in list(self._groups.values()):
            group.refuse(because)
        self._outgoing.follow_nothing()

    def _follow_route(self, group: GroupDelivery, route: GroupRoute) -> None:
        group.withheld_topics = self.withheld_of(route.group_id)
        if route.not_understood is not None:
            group.refuse(refusal(name_group(route), route.not_understood))
            return
        group.refusal = None
        lanes = group.lanes.values()
        if route is not group.route or any(self.topics.get(owned.topic.topic_id) is not owned.topic for owned in lanes):
            group.reroute(route, self.topics)
