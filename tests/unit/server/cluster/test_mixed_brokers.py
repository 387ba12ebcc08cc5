"""Brokers of different versions, each working out alone which lanes are its own: together they must be right.

Each sees the others as the registry shows them, and the configuration by what it understands itself.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confdb.brokers import LiveBroker
from confdb.routes import (
    GroupMode,
    GroupOrder,
    GroupRoute,
    NotUnderstood,
    Snapshot,
    SubscriptionMode,
    SubscriptionRoute,
    TopicRoute,
    requirements,
    withheld_topics,
)
from msgbroker.server.alarms.not_understood import WITHHELD_MAX, withheld_to_tell
from msgbroker.server.alarms.set_aside import SetAside
from msgbroker.server.cluster.misplaced_instances import ServedHere, find_better_brokers
from msgbroker.server.cluster.placement import WantedLanes
from msgbroker.server.log.topic_queues import TopicQueues
from msgdb.log.queues import QueueRow
from tests.support.broker_builders import PAID, board, route, topic_alarm

pytestmark = pytest.mark.slow

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GROUP = 7
TOPICS = (1, 2, 3)
QUEUES = 4

FEATURES = st.frozensets(st.sampled_from(["a", "b", "c"]), max_size=2)
REQUIRES = st.just(frozenset[str]()) | FEATURES


@dataclass(frozen=True)
class Configured:
    """What things require."""

    of_group: frozenset[str]
    of_topics: tuple[frozenset[str], ...]
    of_subscriptions: tuple[frozenset[str], ...]

    def read_by(self, broker: Version) -> Snapshot:
        """Return the snapshot of a broker of that version, as loading makes it."""

        def why(requires: frozenset[str], *, is_readable: bool = True) -> NotUnderstood | None:
            lacking = tuple(sorted(requires - broker.features))
            return None if not lacking and is_readable else NotUnderstood(lacking)

        topics = {
            topic_id: dataclasses.replace(
                route(topic_id, name=f"TP_{topic_id}"), requires=requires, not_understood=why(requires)
            )
            for topic_id, requires in zip(TOPICS, self.of_topics, strict=True)
        }
        subscriptions = tuple(
            SubscriptionRoute(
                topic_id, topic_id, PAID, SubscriptionMode.DIRECT, None, None, {}, requires,
                why(requires, is_readable=topic_id not in broker.unreadable),
            )
            for topic_id, requires in zip(TOPICS, self.of_subscriptions, strict=True)
        )  # fmt: skip
        group = GroupRoute(
            GROUP, "default", "SG", 60.0, (10.0,), 2, 100, GroupOrder.NONE, GroupMode.SHARED, paused=False,
            subscriptions=subscriptions, requires=self.of_group, not_understood=why(self.of_group),
        )  # fmt: skip
        withheld = withheld_topics(group, topics)
        return Snapshot(
            1,
            topics={("default", topic.name): topic for topic in topics.values()},
            groups={("default", group.name): group},
            withheld={GROUP: withheld} if withheld else {},
        )


@dataclass(frozen=True)
class Version:
    """A broker: what it understands, what it cannot read for reasons of its own, and its instances of the group."""

    number: int
    features: frozenset[str]
    unreadable: frozenset[int]
    instances: int
    has_sent_on: bool = False
    """An instance of the group, to where what it cannot read may be read."""

    def in_registry(self, configured: Configured) -> LiveBroker:
        """Return what the others see of it."""
        snapshot = configured.read_by(self)
        # Instances of a group that is not understood are sent away.
        is_served = snapshot.groups["default", "SG"].not_understood is None
        groups = {GROUP: self.instances} if self.instances and is_served else {}
        return LiveBroker(
            UUID(int=self.number), f"host:{self.number}", "host", 1, 1, draining=False, groups=groups,
            process_version="1", started_at=NOW, heartbeat_at=NOW, features=self.features,
            withheld=withheld_to_tell({GROUP} if self.has_sent_on else groups, snapshot),
        )  # fmt: skip

    def wanted(self, configured: Configured, others: Sequence[LiveBroker]) -> tuple[set[int], set[int]]:
        """Return the queues whose lanes it wants, and the brokers that it takes for the owners of others."""
        snapshot = configured.read_by(self)
        group = SimpleNamespace(route=snapshot.groups["default", "SG"], instances=dict.fromkeys(range(self.instances)))
        hub: Any = SimpleNamespace(groups={GROUP: _Group(group)})
        queues = TopicQueues(None)  # type: ignore[arg-type]
        queues._learn(
            QueueRow(topic_id * 1_000 + number, topic_id, 1, number, 0, sealed=False)
            for topic_id in TOPICS
            for number in range(QUEUES)
        )
        lanes = WantedLanes(
            broker_id=UUID(int=self.number),
            hub=hub,
            queues=queues,
            snapshot=lambda: snapshot,
            topics_aside=SetAside(board(), topic_alarm),
            features=self.features,
        )
        with pytest.raises(StopIteration):
            lanes.among(others).send(None)
        queue_ids = {queue_id for topics in lanes.latest.values() for queue_id in topics}
        return queue_ids, {owner_id.int for owner_ids in lanes.owners.values() for owner_id in owner_ids}


class _Group:
    """Hashable, as groups are."""

    def __init__(self, parts: Any) -> None:
        self.route = parts.route
        self.instances = parts.instances


CONFIGURED = st.builds(
    Configured,
    REQUIRES,
    st.tuples(*[REQUIRES] * len(TOPICS)),
    st.tuples(*[REQUIRES] * len(TOPICS)),
)
VERSIONS = st.lists(
    st.builds(
        Version,
        st.integers(1, 1_000),
        FEATURES | st.just(frozenset({"a", "b", "c"})),
        st.frozensets(st.sampled_from(TOPICS), max_size=1),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda version: version.number,
)


@given(CONFIGURED, VERSIONS)
@settings(max_examples=200, deadline=None)
def test_each_lane_has_one_owner_which_understands_it_and_none_where_nobody_does(
    configured: Configured, versions: list[Version]
) -> None:
    registry = [version.in_registry(configured) for version in versions]
    seen = {
        version: version.wanted(configured, [each for each in registry if each.broker_id.int != version.number])
        for version in versions
    }
    wanted = {version: queue_ids for version, (queue_ids, _) in seen.items()}

    count = Counter(queue_id for queues in wanted.values() for queue_id in queues)
    assert max(count.values(), default=1) == 1
    for place, topic_id in enumerate(TOPICS):
        requires = configured.of_group | configured.of_topics[place] | configured.of_subscriptions[place]
        serving = {
            version
            for version in versions
            if version.instances and requires <= version.features and topic_id not in version.unreadable
        }
        owners = {version for version, queues in wanted.items() if any(q // 1_000 == topic_id for q in queues)}
        assert owners <= serving
        owned = sum(1 for queue_id in count if queue_id // 1_000 == topic_id)
        assert owned == (QUEUES if serving else 0)
    having_lanes = {version.number for version, queue_ids in wanted.items() if queue_ids}
    for version, (_, owner_ids) in seen.items():
        if version.instances and configured.of_group <= version.features:
            # Whatever it understands itself, it knows where the lanes are.
            assert owner_ids == having_lanes - {version.number}


@given(CONFIGURED, VERSIONS)
@settings(max_examples=200, deadline=None)
def test_an_instance_that_is_sent_elsewhere_is_not_sent_back(configured: Configured, versions: list[Version]) -> None:
    # One instance, at the first broker; it follows each relocation. The first address is the one that clients take.
    visited = [versions[0].number]
    while (sent_to := _relocated(configured, versions, visited)) is not None:
        assert sent_to not in visited
        visited.append(sent_to)

    everything = configured.of_group.union(*configured.of_topics, *configured.of_subscriptions)
    last = next(version for version in versions if version.number == visited[-1])
    serve_all = [version for version in versions if everything <= version.features and not version.unreadable]
    if serve_all and configured.of_group <= versions[0].features:
        assert everything <= last.features
        assert not last.unreadable


def _relocated(configured: Configured, versions: list[Version], visited: list[int]) -> int | None:
    *before, at = visited
    placed = {
        v.number: dataclasses.replace(v, instances=1 if v.number == at else 0, has_sent_on=v.number in before)
        for v in versions
    }
    here = placed[at]
    snapshot = configured.read_by(here)
    group = snapshot.groups["default", "SG"]
    if group.not_understood is not None:
        # Not attached there at all: its client tries the others in turn.
        return None
    others = [version.in_registry(configured) for version in placed.values() if version.number != at]
    wanted, owners = here.wanted(configured, others)
    owner_ids = {UUID(int=number) for number in owners}
    withheld = snapshot.withheld.get(GROUP, frozenset())
    better = find_better_brokers(
        group, _topics_of(snapshot), others, ServedHere(bool(wanted), owner_ids, here.features, withheld)
    )
    return int(better.addresses[0].rpartition(":")[2]) if better.addresses else None


def _live(number: int, features: str = "", groups: Mapping[int, int] | None = None, **more: Any) -> LiveBroker:
    return LiveBroker(
        UUID(int=number), f"host:{number}", "host", 1, 1, draining=False, groups=groups or {}, process_version="1",
        started_at=NOW, heartbeat_at=NOW, features=frozenset(features), **more,
    )  # fmt: skip


def _topics_of(snapshot: Snapshot) -> dict[int, TopicRoute]:
    return {topic.topic_id: topic for topic in snapshot.topics.values()}


def test_one_instance_goes_to_a_broker_that_understands_what_nobody_with_instances_does() -> None:
    nothing: frozenset[str] = frozenset()
    configured = Configured(nothing, (frozenset("a"), nothing, nothing), (nothing,) * 3)
    snapshot = configured.read_by(Version(1, nothing, frozenset(), 1))
    group, topics = snapshot.groups["default", "SG"], _topics_of(snapshot)

    def elsewhere(*others: LiveBroker, owner: int = 0) -> tuple[list[str], bool]:
        here = ServedHere(has_lanes=not owner, owner_ids=[UUID(int=owner)], features=nothing, withheld=())
        found = find_better_brokers(group, topics, others, here)
        return [*found.addresses], found.is_for_one

    # Nobody understands it; one does; one that does has an instance already.
    assert elsewhere(_live(2), _live(3, groups={GROUP: 1}))[0] == []
    assert elsewhere(_live(2), _live(3, "a")) == (["host:3"], True)
    assert elsewhere(_live(2, "a"), _live(3, "a", groups={GROUP: 1}))[0] == []
    # Without a lane here all go where the lanes are, and not where nothing but instances is.
    assert elsewhere(_live(2, groups={GROUP: 1}), _live(3, groups={GROUP: 1}), owner=3) == (["host:3"], False)


def test_what_is_withheld_is_the_same_for_who_requires_it_and_who_reads_it() -> None:
    nothing: frozenset[str] = frozenset()
    configured = Configured(frozenset("a"), (nothing, frozenset("b"), nothing), (nothing, nothing, frozenset("c")))
    snapshot = configured.read_by(Version(1, frozenset("a"), frozenset({1}), 1))
    required = requirements(snapshot.groups["default", "SG"], _topics_of(snapshot))

    assert required == {1: frozenset("a"), 2: frozenset("ab"), 3: frozenset("ac")}
    assert snapshot.withheld == {GROUP: {1, 2, 3}}


def test_a_heartbeat_carries_a_bounded_number_of_withheld_topics() -> None:
    snapshot = Snapshot(1, withheld={group_id: frozenset(range(200)) for group_id in range(20)})
    told = withheld_to_tell(range(5, 20), snapshot)

    assert [*told] == [*range(5, 15)]
    assert sum(map(len, told.values())) == WITHHELD_MAX
    assert withheld_to_tell([1, 99], snapshot) == {1: frozenset(range(200))}
