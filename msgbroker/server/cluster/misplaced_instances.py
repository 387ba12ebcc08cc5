"""Instances in the wrong place: whose broker has none of their group's lanes, or does not understand all of them.

They are told, after a while, at which brokers they are served better, and their clients go there. Where nobody with an
instance serves a topic, one instance goes, and those that were told before and stayed are asked last: not each can go.

What no feature tells of (an expression that one version of the compiler takes and another does not) a broker finds out
only for itself. It may be that none can read it: so a broker that has sent an instance on for that goes on telling what
it withholds, and the instance is at none of them twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from confdb.brokers import LiveBroker
from confdb.routes import GroupRoute, Snapshot, TopicRoute, requirements
from msgbroker.server import clock
from msgbroker.server.alarms.not_understood import withheld_to_tell
from msgbroker.server.cluster.placement import LanesByGroup
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.instances.instance import Instance

_TOLD_AFTER_SECONDS: Final = 3.0
"""An instance whose broker has had no lane for its group for so long is told where they are."""


class ServedHere(NamedTuple):
    """What this broker does for the instances of a group."""

    has_lanes: bool
    owner_ids: Collection[UUID]
    """The other brokers that should own lanes of the group."""
    features: frozenset[str]
    """What this broker understands."""
    withheld: Collection[int]
    """The topics of which this broker gives them nothing, as far as it tells others of that."""


class BetterBrokers(NamedTuple):
    """Brokers that do more for instances of a group than this one."""

    addresses: Sequence[str]
    is_for_one: bool
    """Whether one instance is enough: the broker it goes to then serves what nobody does."""


NO_BETTER_BROKERS: Final = BetterBrokers((), is_for_one=False)


class MisplacedInstances:
    """Tells instances where to go, and keeps in mind since when they are in the wrong place."""

    def __init__(
        self,
        *,
        hub: DeliveryHub,
        snapshot: Callable[[], Snapshot],
        features: frozenset[str],
        after_seconds: float = _TOLD_AFTER_SECONDS,
    ) -> None:
        self._hub = hub
        self._snapshot = snapshot
        self._features = features
        self._after_seconds = after_seconds
        self._since: dict[int, float] = {}
        """Since when there are better brokers for the instances of each group."""
        self._sent_on: set[int] = set()
        """Groups of which an instance was sent to where what is withheld here may be understood."""

    def withheld_to_tell(self, snapshot: Snapshot) -> dict[int, frozenset[int]]:
        """Return what others must know: the topics that are withheld from groups with instances here, or sent on."""
        if not snapshot.withheld:
            return {}
        with_instances = {group_id for group_id, group in self._hub.groups.items() if group.instances}
        return withheld_to_tell(with_instances | self._sent_on, snapshot)

    def relocate(
        self,
        wanted: LanesByGroup,
        owners: Mapping[GroupDelivery, Collection[UUID]],
        others: Sequence[LiveBroker],
    ) -> None:
        """Tell those who have been in the wrong place for long: *wanted* lanes are here, *owners* have the others."""
        now = clock.now()
        snapshot = self._snapshot()
        self._sent_on &= snapshot.withheld.keys()
        self._since = {group_id: at for group_id, at in self._since.items() if group_id in self._hub.groups}
        told = self.withheld_to_tell(snapshot)
        others = [broker for broker in others if not broker.draining]
        for group_id, group in self._hub.groups.items():
            better = NO_BETTER_BROKERS
            if others and group.instances and group.refusal is None:
                has_lanes = bool(wanted.get(group) or group.lanes or not group.route.subscriptions)
                if not has_lanes or group_id in snapshot.withheld:
                    here = ServedHere(has_lanes, owners.get(group, ()), self._features, told.get(group_id, ()))
                    better = find_better_brokers(group.route, self._hub.topics, others, here)
            if not better.addresses:
                self._since.pop(group_id, None)
                continue
            if now - self._since.setdefault(group_id, now) >= self._after_seconds:
                del self._since[group_id]
                self._send(group, better)

    def _send(self, group: GroupDelivery, elsewhere: BetterBrokers) -> None:
        """Tell the group's instances to go there: all of them, or the one that is likeliest to go."""
        # Those that pull have no way to be told.
        instances = [instance for instance in group.instances.values() if not instance.pulls]
        if elsewhere.is_for_one:
            instances = sorted(instances, key=_reluctance)[:1]
            self._sent_on.add(group.route.group_id)
        for instance in instances:
            instance.relocate(elsewhere.addresses)


def _reluctance(instance: Instance) -> tuple[int, int]:
    """Order instances by how willing they seem to go, and how little is lost with them."""
    return instance.sent_on_count, instance.unsettled


def find_better_brokers(
    group: GroupRoute, topics: Mapping[int, TopicRoute], others: Sequence[LiveBroker], here: ServedHere
) -> BetterBrokers:
    """Return those of *others* that instances of *group* should go to, with what they get *here*. Pure."""
    owners = [broker.address for broker in others if broker.broker_id in here.owner_ids]
    if owners and not here.has_lanes:
        return BetterBrokers(owners, is_for_one=False)
    required = requirements(group, topics)
    with_instances = [broker for broker in others if group.group_id in broker.groups]
    lacking = [
        topic_id
        for topic_id, requires in required.items()
        if (topic_id in here.withheld or not requires <= here.features)
        and not any(broker.serves(group.group_id, topic_id, requires) for broker in with_instances)
    ]
    if not lacking:
        return NO_BETTER_BROKERS
    # To a broker that understands all of it, or it would be sent on from there for something else.
    everything = frozenset[str]().union(*required.values())
    understanding = [
        broker.address for broker in others if everything <= broker.features and not broker.withheld.get(group.group_id)
    ]
    return BetterBrokers(understanding, is_for_one=True)
