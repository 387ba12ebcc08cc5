"""The turns of groups: one budget for all that are marked, and everybody's turn comes."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.hub import DeliveryConfig, DeliveryHub
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.deliver.owned_lane import LaneSlot
from msgbroker.server.deliver.pump_budget import PumpBudget
from msgbroker.server.log.cache import LogCache
from msgdb.lanes.records import ClaimedLane, LaneKey
from tests.support.broker_builders import board, log_message, route, snapshot
from tests.unit.server.test_report import group_route


class Backlog:
    """Stands for a group with so many messages to hand out, in batches."""

    def __init__(self, group_id: int, messages: int) -> None:
        self.route = SimpleNamespace(group_id=group_id)
        self.messages = messages
        self.turns = 0

    def pump(self, _: float, budget: PumpBudget) -> bool:
        self.turns += 1
        while self.messages and budget.messages > 0:
            batch = min(self.messages, 256)
            self.messages -= batch
            budget.messages -= batch
        return self.messages > 0


def hub_with(groups: list[Backlog], turn_messages_max: int) -> DeliveryHub:
    hub = DeliveryHub(LogCache(None), board(), DeliveryConfig(turn_messages_max=turn_messages_max))  # type: ignore[arg-type]
    for group in groups:
        hub.mark(group)  # type: ignore[arg-type]
    return hub


async def next_turn() -> None:
    await asyncio.sleep(0)


async def test_a_turn_hands_out_a_bounded_number_however_many_groups_are_marked() -> None:
    groups = [Backlog(number, 1_000) for number in range(1_000)]
    hub_with(groups, 4_000)
    await next_turn()

    assert 4_000 <= 1_000 * 1_000 - sum(group.messages for group in groups) < 4_000 + 256


async def test_the_turn_goes_round_so_that_no_group_waits_for_another_to_end() -> None:
    groups = [Backlog(number, 1_000) for number in range(50)]
    hub_with(groups, 1_024)
    for _ in range(13):
        await next_turn()

    assert {group.turns for group in groups} <= {1, 2}
    for _ in range(200):
        await next_turn()
    assert [group.messages for group in groups] == [0] * 50


async def test_few_groups_share_what_a_turn_has() -> None:
    groups = [Backlog(1, 10_000), Backlog(2, 10_000), Backlog(3, 10)]
    hub = hub_with(groups, 3_072)
    await next_turn()

    assert [group.messages for group in groups] == [10_000 - 1_024, 10_000 - 1_024, 0]
    assert {group.route.group_id for group in _marked(hub)} == {1, 2}


class Leases:
    """A hub with lanes of one group, each with a lease of its own."""

    def __init__(self) -> None:
        self.hub = DeliveryHub(LogCache(None), board())  # type: ignore[arg-type]
        self.hub.mark = lambda group: None  # type: ignore[method-assign]
        self.hub.follow(snapshot(route()))
        self.group: GroupDelivery = self.hub.attach(group_route(), Instance("one", 100, 1_000_000))
        self.opened = 0

    @property
    def slots(self) -> list[LaneSlot]:
        return list(self.group.slots.values())

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
                for slot in leases.slots:
                    # A renewal leaves out what somebody has locked.
                    if chance.random() < 0.8:
                        slot.lease_until = max(slot.lease_until, now + 5)
            case _:
                now += chance.choice([0.1, 1.0, 3.0])
                held = [slot for slot in leases.slots if slot.lease_until > now]
                leases.hub.tick_once(now)
                assert leases.slots == held


def test_a_change_elsewhere_leaves_a_groups_lanes_alone_but_for_who_may_see_stress_messages() -> None:
    leases, topic = Leases(), route()
    group = leases.group.route
    groups = {(group.namespace, group.name): group}
    leases.hub.follow(snapshot(topic, groups=groups))
    leases.open(5.0)
    (slot,) = leases.slots
    slot.topic = topic
    matcher, message = slot.matcher, log_message()
    assert not slot.may_hand_out(message)
    allowed = frozenset({(group.group_id, topic.topic_id, "*")})
    leases.hub.follow(snapshot(topic, route(2, name="TP_OTHER"), groups=groups, stress_whitelist=allowed))

    assert slot.matcher is matcher
    assert slot.may_hand_out(message)


def test_a_lane_that_fails_at_a_change_is_given_up_and_the_other_groups_follow_it() -> None:
    leases, topic = Leases(), route()
    first = leases.group.route
    other = dataclasses.replace(first, group_id=2, name="SG_OTHER")
    leases.hub.attach(other, Instance("two", 100, 1_000_000))
    groups = {(each.namespace, each.name): each for each in (first, other)}
    leases.hub.follow(snapshot(topic, groups=groups))
    leases.open(5.0)
    (slot,) = leases.slots
    (instance,) = leases.group.instances.values()
    leases.hub.detach(leases.group, instance)
    slot.lane.reconfigure = None  # type: ignore[assignment, method-assign]
    changed = {name: dataclasses.replace(each, attempts_max=7) for name, each in groups.items()}
    leases.hub.follow(snapshot(topic, groups=changed))

    # Its only lane is gone, and the group with it.
    assert leases.hub.groups.keys() == {2}
    assert leases.hub.groups[2].route.attempts_max == 7


def test_a_change_of_a_topic_or_of_the_group_is_followed_by_its_lanes() -> None:
    leases, topic = Leases(), route(stress_refused=True)
    leases.open(5.0)
    (slot,) = leases.slots
    group = dataclasses.replace(leases.group.route, paused=True)
    matchers = [slot.matcher]
    for groups in ({(group.namespace, group.name): leases.group.route}, {(group.namespace, group.name): group}):
        leases.hub.follow(snapshot(topic, groups=groups))
        matchers.append(slot.matcher)

    assert slot.topic is topic
    assert leases.group.route is group
    assert len({id(matcher) for matcher in matchers}) == 3


def _marked(hub: DeliveryHub) -> list[GroupDelivery]:
    return list(hub._marked.values())
