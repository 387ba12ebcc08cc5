"""In which order lanes have their turns: what was read comes first, and who had a turn goes behind the others."""

from __future__ import annotations

from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.deliver.lane_turns import InstanceTurns, LaneTurns
from tests.support.broker_builders import lanes


def order_of(turns: LaneTurns) -> list[int]:
    taken: list[int] = []
    while turns:
        taken.append(turns.take().lane.key.queue_id)
    return taken


def test_lanes_have_their_turns_in_the_order_in_which_they_came() -> None:
    turns = LaneTurns()
    three, one, two = lanes(3, 1, 2)
    for owned in (three, one, two, three):
        turns.add(owned)

    assert order_of(turns) == [3, 1, 2]


def test_a_lane_whose_block_was_read_comes_before_all_others_and_once() -> None:
    turns = LaneTurns()
    one, two, three = lanes(1, 2, 3)
    for owned in (one, two, three):
        turns.add(owned)
    turns.add_first(three)
    turns.add_first(two)
    turns.add(three)

    assert [owned.lane.key.queue_id for owned in turns] == [3, 2, 1]
    assert order_of(turns) == [3, 2, 1]


def test_a_lane_that_has_more_goes_behind_the_others_and_one_that_is_gone_has_no_turn() -> None:
    turns = LaneTurns()
    one, two, three = lanes(1, 2, 3)
    for owned in (one, two, three):
        turns.add(owned)
    assert turns.take() is one
    turns.put_back(one)
    turns.discard(2)

    assert order_of(turns) == [3, 1]


def test_instances_take_turns_and_one_without_room_has_none_until_it_says_that_it_has_some() -> None:
    turns = InstanceTurns()
    instances = [Instance("one", 1, 1_000), Instance("two", 0, 1_000), Instance("three", 1, 1_000)]
    for instance in instances:
        instance.say_room = turns.adder_of(instance)
        instance.say_room()
    one, two, three = instances

    assert [found[0] for _ in range(4) if (found := turns.next())] == [one, three, one, three]
    two.credit = 1
    assert {found[0] for _ in range(3) if (found := turns.next())} == {one, two, three}
    turns.discard(one)
    turns.discard(two)
    turns.discard(three)
    assert turns.next() is None
