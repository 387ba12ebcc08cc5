"""A group with thousands of instances: those that have all they want cost nothing, and none with room is forgotten."""

from __future__ import annotations

import random
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgbroker.engine.lane.lane import Lane
from msgbroker.engine.matching import Matcher
from msgbroker.engine.verdicts import Settlement, Verdict
from msgbroker.server import clock
from msgbroker.server.deliver.instances.instance import Instance, InstanceRoom
from msgbroker.server.deliver.lane_turns import LOOKS_MAX
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.deliver.lanes.rules import lane_config
from msgbroker.server.deliver.outgoing import Outgoing, OutgoingConfig
from msgbroker.server.deliver.pump import PumpBudget
from msgbroker.server.log.message import LogMessage
from msgdb.lanes.records import ClaimedLane, LaneKey
from tests.support.broker_builders import group_route, route
from tests.support.lane_builders import held
from tests.support.one_group import QUEUE, OneGroup


class Watched(Instance):
    """An instance that counts how often it is looked at."""

    looks = 0

    @property
    def room(self) -> InstanceRoom:
        """What it may be given now."""
        Watched.looks += 1
        return super().room


def full_group(count: int) -> tuple[OneGroup, list[Watched]]:
    """Return a group of which each instance holds the one message that it wants."""
    one = OneGroup(credit=0)
    instances = [Watched(f"instance-{number}", 1, 1_000_000) for number in range(count)]
    for instance in instances:
        one.group.attach(instance, 0.0)
    one.commit(0, count + 10_000)
    while one.group.pump(1.0, PumpBudget(10_000)):
        pass
    assert [instance.unsettled for instance in instances] == [1] * count
    return one, instances


def test_instances_that_have_all_they_want_are_looked_at_once() -> None:
    one, _ = full_group(100)
    Watched.looks = 0
    for _ in range(20):
        one.group.pump(1.0, PumpBudget())
        assert not one.group.is_behind({1})

    assert Watched.looks == 0


def test_one_turn_of_the_event_loop_looks_at_a_bounded_number_of_instances() -> None:
    one, instances = full_group(LOOKS_MAX + 100)
    for instance in instances:
        # As after a message that each of them has settled, and been given another for.
        instance.say_room()
    Watched.looks = 0

    assert one.group.pump(1.0, PumpBudget()), "the others have their turn"
    assert Watched.looks <= LOOKS_MAX
    assert not one.group.pump(1.0, PumpBudget())
    assert Watched.looks > LOOKS_MAX


def test_a_lane_that_is_stopped_asks_only_those_who_hold_something_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    one, instances = full_group(10)
    lane: Lane[LogMessage] = Lane(ClaimedLane(LaneKey(1, "", 2), 1, 0, []), (), lane_config(group_route()), 0.0)
    other = OwnedLane(lane, route(), Matcher(group_route(), route()), lambda _: True, lease_until=1e9)
    one.group.add_lane(other)
    asked: list[str] = []
    give_back = Instance.give_back_lane

    def noted(instance: Instance, queue_id: int, epoch: int) -> None:
        asked.append(instance.name)
        give_back(instance, queue_id, epoch)

    monkeypatch.setattr(Instance, "give_back_lane", noted)
    one.group.stop_lane(other)
    assert asked == []
    one.group.stop_lane(one.group.lanes[QUEUE])

    assert sorted(asked) == sorted(instance.name for instance in instances)
    assert [instance.unsettled for instance in instances] == [0] * 10, "none of it was written"


def test_an_instance_that_reads_again_gets_turns_again() -> None:
    one = OneGroup()
    one.commit(0, 1)
    one.group.pump(1.0, PumpBudget())
    with patch.object(clock, "now", lambda: 1.0):
        assert one.instance.next_response()
    one.instance.outlet.give_back()
    one.commit(1, 1)
    one.group.pump(1.0, PumpBudget())
    assert one.instance.unsettled == 1, "nothing while it does not read"
    one.instance.written()
    one.group.pump(1.0, PumpBudget())

    assert one.instance.unsettled == 2


class SomeInstances:
    """A group of three, to which anything may happen."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.is_memory_short = self.chance.random() < 0.5
        self.outgoing = Outgoing(OutgoingConfig(bytes_max=4_000 if self.is_memory_short else 1_000_000))
        self.one = OneGroup(credit=0)
        self.now = 1.0
        self.instances = [self.attach(number) for number in range(3)]

    def attach(self, number: int) -> Instance:
        outlet = self.outgoing.open(lambda _: None)
        instance = Instance(f"i{number}", self.chance.randint(0, 3), 3_000, outlet)
        outlet.on_stalled(instance.give_back)
        self.one.group.attach(instance, self.now)
        return instance

    def step(self) -> None:
        actions = [self.commit, self.pump, self.pump, self.settle, self.grant, self.pause, self.call, self.write]
        number = self.chance.randrange(3)
        with patch.object(clock, "now", lambda: self.now):
            self.chance.choice([*actions, self.replace, self.wait])(number)

    def commit(self, _: int) -> None:
        first = self.one.cache.end_of(QUEUE)
        self.one.commit(first, self.chance.randint(1, 3), b"x" * self.chance.choice([4, 900]))

    def pump(self, _: int) -> None:
        self.one.group.pump(self.now, PumpBudget())

    def settle(self, number: int) -> None:
        verdict = self.chance.choice([*Verdict])
        self.one.group.settle(
            self.instances[number], Settlement(held(0, 9_999, 1, queue_id=QUEUE), verdict, 0.0), self.now
        )

    def grant(self, number: int) -> None:
        self.instances[number].credit = self.chance.randint(0, 4)

    def pause(self, number: int) -> None:
        self.instances[number].is_paused = not self.instances[number].is_paused

    def call(self, number: int) -> None:
        instance = self.instances[number]
        instance.handed_max = instance.handed_count + self.chance.randint(0, 3)

    def write(self, number: int) -> None:
        instance = self.instances[number]
        if instance.outlet in self.outgoing.writing:
            instance.written()
        else:
            instance.next_response()

    def replace(self, number: int) -> None:
        self.one.group.detach(self.instances[number], self.now)
        self.instances[number].outlet.close()
        self.instances[number] = self.attach(number)

    def wait(self, _: int) -> None:
        self.now += self.chance.choice([0.1, 3.0, 61.0])
        self.outgoing.watch_once(self.now)
        self.one.group.tick(self.now)

    def is_left_out(self, instance: Instance) -> bool:
        """Return whether it has room, gets no turns, and nothing is on its way that will change that."""
        is_writing = self.is_memory_short and instance.outlet.held_bytes > 0
        return instance.name not in self.one.group._turns.takers._line and instance.room.messages > 0 and not is_writing


@given(seed=st.integers(), steps=st.integers(1, 80))
def test_whoever_has_room_gets_turns(seed: int, steps: int) -> None:
    """Whatever happens, in any order."""
    some = SomeInstances(seed)
    for _ in range(steps):
        some.step()

        assert not any(map(some.is_left_out, some.instances))
