"""Instances in the wrong place: whose broker has none of their group's lanes, or does not understand all of them.

They are told, after a while, at which brokers they are served better, and their clients go there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from confdb.brokers import LiveBroker
from confdb.routes import GroupRoute, Snapshot, TopicRoute, requirements
from msgbroker.server import clock
from msgbroker.server.delivery import DeliveryHub
from msgbroker.server.wanted_lanes import LanesByGroup
from msgbroker.v1 import subscriber_pb2


class Elsewhere(NamedTuple):
    """Brokers that are better for instances of a group."""

    addresses: Sequence[str]
    is_for_one: bool
    """One instance is enough: the broker it goes to then serves what nobody does."""


NOWHERE: Final = Elsewhere((), is_for_one=False)


class Relocations:
    """Tells instances where to go, and keeps in mind since when they are in the wrong place."""

    def __init__(
        self, hub: DeliveryHub, snapshot: Callable[[], Snapshot], features: frozenset[str], after_seconds: float
    ) -> None:
        self._hub = hub
        self._snapshot = snapshot
        self._features = features
        self._after_seconds = after_seconds
        self._since: dict[int, float] = {}

    def relocate(self, wanted: LanesByGroup, others: Sequence[LiveBroker]) -> None:
        """Tell those who have been in the wrong place for long enough, by the lanes that are *wanted* here."""
        now = clock.now()
        snapshot = self._snapshot()
        others = [broker for broker in others if not broker.draining]
        for group_id, group in self._hub.groups.items():
            elsewhere = NOWHERE
            if others and group.instances and group.refusal is None:
                has_lanes = bool(wanted.get(group) or group.slots or not group.route.subscriptions)
                if not has_lanes or group_id in snapshot.withheld:
                    elsewhere = find_elsewhere(
                        group.route, self._hub.topics, others, self._features, has_lanes=has_lanes
                    )
            if not elsewhere.addresses:
                self._since.pop(group_id, None)
                continue
            if now - self._since.setdefault(group_id, now) >= self._after_seconds:
                del self._since[group_id]
                relocation = subscriber_pb2.Relocation(addresses=elsewhere.addresses)
                for instance in [*group.instances.values()][: 1 if elsewhere.is_for_one else None]:
                    instance.notice(subscriber_pb2.SubscribeResponse(relocation=relocation))


def find_elsewhere(
    group: GroupRoute,
    topics: Mapping[int, TopicRoute],
    others: Sequence[LiveBroker],
    features: frozenset[str],
    *,
    has_lanes: bool,
) -> Elsewhere:
    """Return where instances of *group* should go from a broker of these *features*. Pure."""
    required = requirements(group, topics)

    def is_of_use(broker: LiveBroker) -> bool:
        return any(broker.serves(group.group_id, topic_id, requires) for topic_id, requires in required.items())

    with_instances = [broker for broker in others if group.group_id in broker.groups]
    owners = [broker.address for broker in with_instances if not required or is_of_use(broker)]
    if owners and not has_lanes:
        return Elsewhere(owners, is_for_one=False)
    lacking = [
        topic_id
        for topic_id, requires in required.items()
        if not requires <= features
        and not any(broker.serves(group.group_id, topic_id, requires) for broker in with_instances)
    ]
    if not lacking:
        return NOWHERE
    # To a broker that understands all of it, or it would be sent on from there for something else.
    everything = frozenset[str]().union(*required.values())
    return Elsewhere([broker.address for broker in others if everything <= broker.features], is_for_one=True)
