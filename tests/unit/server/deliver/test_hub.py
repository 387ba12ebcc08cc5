"""The lanes of a hub: they follow the configuration, and end with their leases."""

from __future__ import annotations

import dataclasses
import random

from hypothesis import given
from hypothesis import strategies as st

from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.log.cache import LogCache
from msgdb.lanes.records import ClaimedLane, LaneKey
from tests.support.broker_builders import board, log_message, route, snapshot
from tests.support.broker_builders import group_of_hangzhou as group_route


class Leases:
    """A hub with lanes of one group, each with a lease of its own."""

    def __init__(self) -> None:
        self.hub = DeliveryHub(LogCache(None), board())  # type: ignore[arg-type]
        self.hub.pump.mark = lambda group: None  # type: ignore[method-assign]
        self.hub.follow(snapshot(route()))
        self.group: GroupDelivery = self.hub.attach(group_route(), Instance("one", 100, 1_000_000))
        self.opened = 0

    @property
    def lanes(self) -> list[OwnedLane]:
        return list(self.group.lanes.values())

    def open(self, lease_until: float) -> None:
        self.opened += 1
        claimed = ClaimedLane(LaneKey(1, "", self.opened), 1, 0, [])
        self.hub.open_lane(self.group, route(), claimed, (), lease_until)


@given(seed=st.integers(), steps=st.integers(1, 60))
def test_with_every_tick_just_those_lanes_are_closed_whose_leases_have_passed(seed: int, steps: int) -> None:
    chance = random.Random(seed)
    leases = Leases()
    now = 0.0
    for _ in range(steps):
        match chance.randrange(4):
            case 0:
                leases.open(now + chance.randint(-1, 5))
            case 1:
                for owned in leases.lanes:
                    # A renewal leaves out what somebody has locked.
                    if chance.random() < 0.8:
                        owned.lease_until = max(owned.lease_until, now + 5)
            case _:
                now += chance.choice([0.1, 1.0, 3.0])
                held = [owned for owned in leases.lanes if owned.lease_until > now]
                leases.hub.tick_once(now)
                assert leases.lanes == held


def test_a_lane_that_was_claimed_again_is_not_given_up_for_its_predecessor() -> None:
    leases = Leases()
    leases.open(5.0)
    (before,) = leases.lanes
    assert leases.hub.give_up(before)
    leases.opened = 0
    leases.open(5.0)
    (after,) = leases.lanes

    assert leases.hub.group_serving(before) is None
    assert not leases.hub.give_up(before)
    leases.hub.lane_failed(before, ValueError("too late"))
    assert [owned for _, owned in leases.hub.lanes()] == [after]
    assert leases.hub.group_serving(after) is leases.group


def test_a_change_elsewhere_leaves_a_groups_lanes_alone_but_for_who_may_see_stress_messages() -> None:
    leases, topic = Leases(), route()
    group = leases.group.route
    groups = {(group.namespace, group.name): group}
    leases.hub.follow(snapshot(topic, groups=groups))
    leases.open(5.0)
    (owned,) = leases.lanes
    owned.topic = topic
    matcher, message = owned.matcher, log_message()
    assert not owned.may_hand_out(message)
    allowed = frozenset({(group.group_id, topic.topic_id, "*")})
    leases.hub.follow(snapshot(topic, route(2, name="TP_OTHER"), groups=groups, stress_whitelist=allowed))

    assert owned.matcher is matcher
    assert owned.may_hand_out(message)


def test_a_lane_that_fails_at_a_change_is_given_up_and_the_other_groups_follow_it() -> None:
    leases, topic = Leases(), route()
    first = leases.group.route
    other = dataclasses.replace(first, group_id=2, name="SG_OTHER")
    leases.hub.attach(other, Instance("two", 100, 1_000_000))
    groups = {(each.namespace, each.name): each for each in (first, other)}
    leases.hub.follow(snapshot(topic, groups=groups))
    leases.open(5.0)
    (owned,) = leases.lanes
    (instance,) = leases.group.instances.values()
    leases.hub.detach(leases.group, instance)
    owned.lane.reconfigure = None  # type: ignore[assignment, method-assign]
    changed = {name: dataclasses.replace(each, attempts_max=7) for name, each in groups.items()}
    leases.hub.follow(snapshot(topic, groups=changed))

    # Its only lane is gone, and the group with it.
    assert leases.hub.groups.keys() == {2}
    assert leases.hub.groups[2].route.attempts_max == 7


def test_a_change_of_a_topic_or_of_the_group_is_followed_by_its_lanes() -> None:
    leases, topic = Leases(), route(stress_refused=True)
    leases.open(5.0)
    (owned,) = leases.lanes
    group = dataclasses.replace(leases.group.route, paused=True)
    matchers = [owned.matcher]
    for groups in ({(group.namespace, group.name): leases.group.route}, {(group.namespace, group.name): group}):
        leases.hub.follow(snapshot(topic, groups=groups))
        matchers.append(owned.matcher)

    assert owned.topic is topic
    assert leases.group.route is group
    assert len({id(matcher) for matcher in matchers}) == 3
