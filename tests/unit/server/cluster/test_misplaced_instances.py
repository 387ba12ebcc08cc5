"""Which instances are told to subscribe elsewhere, and what others hear of that."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from confdb.brokers import LiveBroker
from confdb.routes import GroupMode, GroupOrder, GroupRoute, Snapshot, SubscriptionMode, SubscriptionRoute
from msgbroker.engine.lane.begun import Begun
from msgbroker.server.cluster.misplaced_instances import MisplacedInstances
from msgbroker.server.deliver.instances.instance import Instance
from tests.support.broker_builders import PAID, route, snapshot

GROUP = 7
TOPIC = 1
WITHHELD = {GROUP: frozenset({TOPIC})}
NOW = datetime(2026, 1, 1, tzinfo=UTC)
OTHER = LiveBroker(
    UUID(int=2), "host:2", "host", 1, 1, draining=False, groups={}, process_version="1", started_at=NOW,
    heartbeat_at=NOW,
)  # fmt: skip


class Group(SimpleNamespace):
    """Hashable, as groups are."""

    __hash__ = object.__hash__  # type: ignore[assignment]


class OneBroker:
    """A broker that serves a group, but not one of its topics; its instances are told at once."""

    def __init__(self, *instances: Instance) -> None:
        topic = route(TOPIC)
        subscription = SubscriptionRoute(TOPIC, TOPIC, PAID, SubscriptionMode.DIRECT, None, None, {})
        group = GroupRoute(
            GROUP, "default", "SG", 60.0, (10.0,), 2, 100, GroupOrder.NONE, GroupMode.SHARED, paused=False,
            subscriptions=(subscription,),
        )  # fmt: skip
        self.snapshot: Snapshot = snapshot(topic, withheld=WITHHELD)
        self.group: Any = Group(
            route=group, instances={each.name: each for each in instances}, lanes={1: None}, refusal=None
        )
        hub: Any = SimpleNamespace(groups={GROUP: self.group}, topics={TOPIC: topic})
        self.misplaced = MisplacedInstances(
            hub=hub, snapshot=lambda: self.snapshot, features=frozenset(), after_seconds=0.0
        )

    def sent(self, *others: LiveBroker) -> list[str]:
        """Return who is told to go, of those that are here."""
        before = {each.name: each.sent_on_count for each in self.group.instances.values()}
        self.misplaced.relocate({}, {}, others or (OTHER,))
        return [e.instance_id for e in self.group.instances.values() if e.sent_on_count > before[e.name]]


def instance(instance_id: str, *, unsettled: int = 0, pulls: bool = False) -> Instance:
    one = Instance(instance_id, 100, 1_000_000, begun=Begun.YES if pulls else Begun.NO)
    one.unsettled = unsettled
    return one


def test_one_that_pulls_is_not_waited_for_where_another_can_be_told() -> None:
    assert OneBroker(instance("pulls", pulls=True), instance("streams")).sent() == ["streams"]


def test_one_that_was_told_and_stays_is_told_again_when_all_others_were() -> None:
    broker = OneBroker(instance("a"), instance("b", unsettled=1), instance("c"))

    assert [broker.sent() for _ in range(4)] == [["a"], ["c"], ["b"], ["a"]]


def test_what_is_withheld_is_told_as_long_as_it_is_so_where_an_instance_was_sent_on_for_it() -> None:
    broker = OneBroker(instance("a"))
    assert broker.sent() == ["a"]
    broker.group.instances.clear()

    assert broker.sent() == []
    assert broker.misplaced.withheld_to_tell(broker.snapshot) == WITHHELD
    broker.snapshot = snapshot(route(TOPIC))
    broker.sent()
    broker.snapshot = snapshot(route(TOPIC), withheld=WITHHELD)
    assert broker.misplaced.withheld_to_tell(broker.snapshot) == {}


@pytest.mark.parametrize("is_there", [True, False])
def test_nobody_is_sent_to_a_broker_that_withholds_it_as_well(is_there: bool) -> None:
    groups = {GROUP: 1} if is_there else {}
    assert OneBroker(instance("a")).sent(dataclasses.replace(OTHER, groups=groups, withheld=WITHHELD)) == []
