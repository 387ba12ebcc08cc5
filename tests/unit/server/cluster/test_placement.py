"""Which lanes a broker should own: what was worked out is kept exactly as long as it is right."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confdb.brokers import LiveBroker
from confdb.routes import GroupMode, GroupOrder, GroupRoute, Snapshot, SubscriptionMode, SubscriptionRoute
from msgbroker.server.alarms.set_aside import SetAside
from msgbroker.server.cluster.placement import LanesByGroup, WantedLanes
from msgbroker.server.log.topic_queues import TopicQueues
from msgdb.log.queues import QueueRow
from tests.support.broker_builders import PAID, board, route, topic_alarm

OWN = UUID(int=1)
TOPICS = (1, 2, 3)
GROUPS = (1, 2, 3, 4)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def group_route(group_id: int, *topic_ids: int) -> GroupRoute:
    subscriptions = tuple(
        SubscriptionRoute(topic_id, topic_id, PAID, SubscriptionMode.DIRECT, None, None, {}) for topic_id in topic_ids
    )
    return GroupRoute(
        group_id, "default", f"SG_{group_id}", 60.0, (10.0,), 2, 100, GroupOrder.NONE, GroupMode.SHARED, paused=False,
        subscriptions=subscriptions,
    )  # fmt: skip


def live(number: int, groups: Mapping[int, int], *, draining: bool = False) -> LiveBroker:
    return LiveBroker(UUID(int=number), f"host:{number}", "host", number, 1, draining, groups, "1", NOW, NOW)


class Broker:
    """The parts of a broker that say what it should own; groups are as simple as they can be."""

    def __init__(self) -> None:
        self.hub: Any = SimpleNamespace(groups={})
        self.queues = TopicQueues(None)  # type: ignore[arg-type]
        self.others: list[LiveBroker] = []
        self.worked_out = 0
        for topic_id in TOPICS:
            self.add_queues(topic_id, 4)
        self.configure(dict.fromkeys(GROUPS, TOPICS))
        self.wanted = self.fresh()

    def fresh(self) -> WantedLanes:
        return WantedLanes(
            broker_id=OWN,
            hub=self.hub,
            queues=self.queues,
            snapshot=lambda: self.snapshot,
            topics_aside=SetAside(board(), topic_alarm),
        )

    def configure(self, topic_ids: Mapping[int, tuple[int, ...]]) -> None:
        topics = {("default", f"TP_{topic_id}"): route(topic_id, name=f"TP_{topic_id}") for topic_id in TOPICS}
        groups = {("default", f"SG_{group_id}"): group_route(group_id, *ids) for group_id, ids in topic_ids.items()}
        self.snapshot = Snapshot(1, topics=topics, groups=groups)
        for one in groups.values():
            if one.group_id in self.hub.groups:
                self.hub.groups[one.group_id].route = one

    def connect(self, group_id: int, instances: int) -> None:
        found = self.snapshot.groups.get(("default", f"SG_{group_id}"))
        if found is not None:
            group = self.hub.groups.setdefault(group_id, Group(found))
            group.instances = dict.fromkeys(range(instances))

    def add_queues(self, topic_id: int, count: int) -> None:
        known = len(self.queues.queues_of(topic_id))  # type: ignore[arg-type]
        self.queues._learn(
            QueueRow(topic_id * 1_000 + number, topic_id, 1, number, 0, sealed=False)
            for number in range(known, known + count)
        )

    def among(self, wanted: WantedLanes) -> LanesByGroup:
        # All queues are known: there is nothing to wait for.
        with pytest.raises(StopIteration) as ended:
            wanted.among(self.others).send(None)
        lanes: LanesByGroup = ended.value.value
        return lanes


class Group:
    """A group with so many instances."""

    def __init__(self, route: GroupRoute) -> None:
        self.route = route
        self.instances: dict[int, None] = {}


def test_what_was_worked_out_is_not_worked_out_again_while_nothing_changes() -> None:
    broker = Broker()
    broker.connect(1, 1)
    first = broker.among(broker.wanted)
    broker.others = [live(2, {})]
    second = broker.among(broker.wanted)
    # Each beat brings the same news in new objects.
    broker.others = [live(2, {})]

    assert broker.among(broker.wanted) is second
    assert first == second


@given(seed=st.integers(), steps=st.integers(1, 30))
def test_what_is_kept_is_what_working_it_out_anew_would_give(seed: int, steps: int) -> None:
    chance = random.Random(seed)
    broker = Broker()
    for _ in range(steps):
        match chance.randrange(6):
            case 0 | 1:
                broker.connect(chance.choice(GROUPS), chance.randint(0, 2))
            case 2:
                broker.hub.groups.pop(chance.choice(GROUPS), None)
            case 3:
                broker.configure(
                    {group_id: TOPICS[: chance.randint(0, 3)] for group_id in GROUPS[chance.randint(0, 1) :]}
                )
            case 4:
                broker.others = [
                    live(number, {group_id: 1 for group_id in GROUPS if chance.random() < 0.5}, draining=number > 3)
                    for number in range(2, 2 + chance.randint(0, 3))
                ]
            case _:
                broker.add_queues(chance.choice(TOPICS), 1)

        assert broker.among(broker.wanted) == broker.among(broker.fresh())
