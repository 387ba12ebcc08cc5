"""Fair turns."""

from __future__ import annotations

from collections import Counter

from msgbroker.engine.sharing import Turn, Turns


def make_turns(lanes: str, instances: str) -> Turns[str, str]:
    turns: Turns[str, str] = Turns()
    for lane in lanes:
        turns.lane_ready(lane)
    for instance in instances:
        turns.instance_open(instance)
    return turns


def test_lanes_and_instances_take_turns() -> None:
    turns = make_turns("xyz", "ab")

    assert [turns.next_turn() for _ in range(4)] == [Turn("x", "a"), Turn("y", "b"), Turn("z", "a"), Turn("x", "b")]


def test_over_time_each_lane_and_each_instance_has_the_same_number_of_turns() -> None:
    turns = make_turns("xyz", "abcd")
    taken = [turn for turn in (turns.next_turn() for _ in range(120)) if turn is not None]

    assert set(Counter(turn.lane for turn in taken).values()) == {40}
    assert set(Counter(turn.instance for turn in taken).values()) == {30}


def test_without_a_lane_or_an_instance_nobody_has_a_turn() -> None:
    assert make_turns("x", "").next_turn() is None
    assert make_turns("", "a").next_turn() is None


def test_who_has_nothing_to_do_is_passed_over() -> None:
    turns = make_turns("xyz", "ab")
    turns.lane_idle("y")
    turns.instance_full("a")
    turns.lane_idle("not there")
    turns.instance_full("not there")

    assert [turns.next_turn() for _ in range(3)] == [Turn("x", "b"), Turn("z", "b"), Turn("x", "b")]


def test_who_comes_back_waits_behind_the_others_and_who_never_left_keeps_its_place() -> None:
    turns = make_turns("xy", "a")
    turns.lane_idle("x")
    turns.lane_ready("x")
    turns.lane_ready("y")

    assert turns.next_turn() == Turn("y", "a")
