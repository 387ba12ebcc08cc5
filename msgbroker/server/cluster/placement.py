"""Placement: which lanes this broker should own.

That follows from its instances, the queues of their topics, and the rule that all brokers share.

A lane is only for brokers that understand its group, its topic and the group's subscriptions to it: by their features,
and by what each says that it withholds.

Asked twice a second, and nearly always the answer is the one before: it is worked out anew only when something that it
follows from has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias
from uuid import UUID

from confdb.brokers import LiveBroker
from confdb.routes import Snapshot, TopicRoute, requirements
from msgbroker.engine.assignment import BrokerWeight, able, owner_of
from msgbroker.server.alarms.set_aside import SetAside
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.log.topic_queues import TopicQueues
from msgdb.lanes.records import LaneKey
from msgdb.postgres.failures import RowsHeldError

LanesByGroup: TypeAlias = Mapping[GroupDelivery, Mapping[int, TopicRoute]]
"""The queues of each group, with their topics."""


class _OtherBroker(NamedTuple):
    """Another broker that may own lanes, as far as the rule asks."""

    broker_id: UUID
    instances: Mapping[int, int]
    """How many it has of each group."""
    features: frozenset[str]
    withheld: Mapping[int, frozenset[int]]
    """The topics that it does not serve each group."""


@dataclass(slots=True)
class _Grounds:
    """All that the wanted lanes follow from: while it is the same, so are they."""

    snapshot: Snapshot
    queues_version: int
    groups: list[tuple[GroupDelivery, int]]
    """The groups here, with how many instances each has."""
    others: list[_OtherBroker]

    def are_those_of(self, before: _Grounds | None) -> bool:
        # A snapshot is known by its identity: comparing all of it would cost more than what it saves.
        return (
            before is not None
            and self.snapshot is before.snapshot
            and self.queues_version == before.queues_version
            and self.groups == before.groups
            and self.others == before.others
        )


class WantedLanes:
    """Works out which lanes this broker should own, and which brokers should own the others of its groups.

    It decides nothing that could go wrong: two brokers that want the same lane, because they know of different ones,
    both try to claim it, and the lease goes to one of them.
    """

    def __init__(
        self,
        *,
        broker_id: UUID,
        hub: DeliveryHub,
        queues: TopicQueues,
        snapshot: Callable[[], Snapshot],
        topics_aside: SetAside[int],
        features: frozenset[str] = frozenset(),
    ) -> None:
        self._topics_aside = topics_aside
        self._broker_id = broker_id
        self._features = features
        self._hub = hub
        self._queues = queues
        self._snapshot = snapshot
        self.latest: LanesByGroup = {}
        """The lanes that `among` found last."""
        self.owners: Mapping[GroupDelivery, Collection[UUID]] = {}
        """The other brokers that should own lanes of each group, by the same rule."""
        self._grounds: _Grounds | None = None
        """What both of these followed from; None where that may have changed unnoticed."""
        self._is_complete = True
        """Whether all queues are known that the lanes follow from."""

    async def among(self, others: Sequence[LiveBroker]) -> LanesByGroup:
        """Return the lanes that this broker should own beside *others*. Raises StoreUnavailableError."""
        grounds = _Grounds(
            self._snapshot(),
            self._queues.version,
            [(group, len(group.instances)) for group in self._hub.groups.values()],
            [_OtherBroker(o.broker_id, o.groups, o.features, o.withheld) for o in others if not o.draining],
        )
        if not grounds.are_those_of(self._grounds):
            self._is_complete = True
            self.latest, self.owners = await self._work_out(grounds)
            # As they were at the beginning: what has changed meanwhile is seen the next time.
            self._grounds = grounds if self._is_complete else None
        return self.latest

    async def _work_out(self, grounds: _Grounds) -> tuple[LanesByGroup, Mapping[GroupDelivery, Collection[UUID]]]:
        topics = {topic.topic_id: topic for topic in grounds.snapshot.topics.values()}
        routes = {route.group_id: route for route in grounds.snapshot.groups.values()}
        lanes: dict[GroupDelivery, dict[int, TopicRoute]] = {}
        owners: dict[GroupDelivery, set[UUID]] = {}
        for group, instances in grounds.groups:
            # As the snapshot has it: the group here keeps its last route while it is given up.
            route = routes.get(group.route.group_id)
            if not instances or route is None or route.not_understood is not None:
                continue
            lanes[group], owners[group] = {}, set()
            for topic_id, requires in requirements(route, topics).items():
                candidates = able(self._weights(route.group_id, topic_id, instances, grounds), requires)
                owned = await self._owners_of(route.group_id, topics[topic_id], candidates)
                lanes[group].update(dict.fromkeys(owned.pop(self._broker_id, ()), topics[topic_id]))
                owners[group].update(owned)
        return lanes, owners

    async def _owners_of(
        self, group_id: int, topic: TopicRoute, candidates: Sequence[BrokerWeight]
    ) -> dict[UUID, list[int]]:
        """Return who should own lanes of the group and topic, each with the queues of its own."""
        if any(candidate.broker_id == self._broker_id for candidate in candidates):
            await self._ensure_queues(topic)
        elif not self._queues.is_current(topic):
            # The queues may not be known here: any of them may own some.
            return {candidate.broker_id: [] for candidate in candidates}
        queue_ids = self._queues.queues_of(topic.topic_id)
        if len(candidates) == 1:
            # Alone with its group it owns all of it: the rule would say so, lane by lane.
            return {candidates[0].broker_id: [*queue_ids]}
        owned: dict[UUID, list[int]] = {}
        for queue_id in queue_ids:
            owner_id = owner_of(LaneKey(group_id, "", queue_id), candidates)
            if owner_id is not None:
                owned.setdefault(owner_id, []).append(queue_id)
        return owned

    async def _ensure_queues(self, topic: TopicRoute) -> None:
        """Make the topic's queues where they are missing.

        Where that cannot be done, those that are known are read all the same, and it is tried again.
        """
        if self._queues.is_current(topic):
            return
        aside = self._topics_aside
        if not aside.is_waiting(topic.topic_id):
            with aside.contained(topic.topic_id), suppress(RowsHeldError):
                await self._queues.ensure(topic)
                aside.worked(topic.topic_id)
        self._is_complete = self._is_complete and self._queues.is_current(topic)

    def _weights(self, group_id: int, topic_id: int, instances: int, grounds: _Grounds) -> list[BrokerWeight]:
        """Return the brokers that may own lanes of the group and topic, unless that requires what they lack."""
        weights = [
            BrokerWeight(other.broker_id, other.instances[group_id], other.features)
            for other in grounds.others
            if group_id in other.instances and topic_id not in other.withheld.get(group_id, ())
        ]
        if topic_id not in grounds.snapshot.withheld.get(group_id, ()):
            weights.append(BrokerWeight(self._broker_id, instances, self._features))
        return weights
