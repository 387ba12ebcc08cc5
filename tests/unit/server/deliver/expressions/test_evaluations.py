"""Where expressions are evaluated, by what they cost; what is known of them; and whose turn it is."""

from __future__ import annotations

import pytest

from msgbroker.contract import limits
from msgbroker.engine.matching import Outcome
from msgbroker.server.deliver.expressions.evaluations import CHEAP_SECONDS, SLOW_SECONDS, Measured
from msgbroker.server.deliver.expressions.known_outcomes import KnownOutcomes
from msgbroker.server.deliver.expressions.lane_line import LaneInLine, LaneLine
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from tests.support.broker_builders import log_message
from tests.support.evaluation_loop import Loop


def cheap() -> Measured:
    return Measured(("an expression",), is_costly=False, is_slow=False)


def test_what_is_slow_again_and_again_is_not_evaluated_on_the_event_loop_any_more() -> None:
    measured = cheap()
    for _ in range(2):
        measured.add_slice(SLOW_SECONDS * 2, 2)
        assert not measured.is_slow
    measured.add_slice(SLOW_SECONDS * 2, 2)

    assert measured.is_slow
    assert measured.seconds_each == pytest.approx(SLOW_SECONDS)


def test_a_slice_that_is_slow_now_and_then_is_chance() -> None:
    measured = cheap()
    for _ in range(20):
        measured.add_slice(SLOW_SECONDS, 1)
        measured.add_slice(0.000_5, 100)

    assert not measured.is_slow


@pytest.mark.parametrize("seconds", [0.002, 0.010, 8.0])
def test_what_is_slow_on_one_message_in_a_hundred_is_slow(seconds: float) -> None:
    measured = cheap()
    for _ in range(3):
        measured.add_slice(99 * 0.000_01, 99)
        measured.add_slice(seconds, 1)

    assert measured.is_slow


def test_one_message_that_takes_most_of_a_slice_makes_it_slow_however_many_were_quick() -> None:
    measured = cheap()
    for _ in range(3):
        measured.add_slice(0.040, 90)

    assert measured.is_slow


def test_what_was_slow_and_has_become_cheap_is_evaluated_on_the_event_loop_again() -> None:
    measured = cheap()
    for _ in range(3):
        measured.add_slice(0.010, 1)
    for _ in range(9):
        measured.add_elsewhere(100 * CHEAP_SECONDS, 100, CHEAP_SECONDS)
    assert measured.is_slow
    # Not cheap: it begins anew.
    measured.add_elsewhere(100 * SLOW_SECONDS, 100, SLOW_SECONDS)
    for _ in range(9):
        measured.add_elsewhere(100 * CHEAP_SECONDS, 100, CHEAP_SECONDS)
    assert measured.is_slow
    measured.add_elsewhere(100 * CHEAP_SECONDS, 100, CHEAP_SECONDS)

    assert not measured.is_slow


def test_what_is_slow_on_one_message_in_many_stays_where_it_holds_nobody_up() -> None:
    measured = cheap()
    for _ in range(3):
        measured.add_slice(0.010, 1)
    for _ in range(40):
        # Cheap on average.
        measured.add_elsewhere(256 * 0.000_1, 256, 0.020)

    assert measured.is_slow


def test_the_slower_it_was_the_longer_it_must_be_cheap_to_come_back() -> None:
    measured = cheap()
    for _ in range(3):
        measured.add_slice(8.0, 1)
    for _ in range(100):
        measured.add_elsewhere(0.001, 1_000, 0.000_01)

    assert measured.is_slow


def test_what_may_be_slow_by_its_structure_is_never_trusted() -> None:
    measured = Measured(("an expression",), is_costly=True, is_slow=True)
    for _ in range(100):
        measured.add_elsewhere(0.000_1, 100, 0.000_001)

    assert measured.is_slow


def test_the_last_few_hundred_evaluations_say_how_long_one_takes() -> None:
    measured = cheap()
    measured.add_slice(1_000 * 0.000_4, 1_000)
    for _ in range(20):
        measured.add_slice(100 * 0.000_1, 100)

    assert measured.seconds_each == pytest.approx(0.000_1, rel=0.1)


async def test_an_expression_that_costs_too_much_by_its_structure_is_not_evaluated_even_once_here() -> None:
    loop = Loop()
    group = loop.header_group(1, 0.040, cost=limits.EXPRESSION_COST_MAX + 1)
    loop.header_group(2, 0.000_1, cost=limits.EXPRESSION_COST_MAX)
    loop.commit(5)
    await loop.turns()

    assert {group_id for group_id, _ in loop.evaluated} == {2}
    assert len(loop.hub.evaluations.line) == 1
    # Nothing was settled, nothing skipped.
    assert (group.lanes[1].lane.next_offset, group.lanes[1].lane.acked_offset) == (0, 0)


async def test_what_turns_out_slow_waits_for_the_helper_and_keeps_what_was_decided() -> None:
    loop = Loop()
    group = loop.header_group(1, 0.040)
    loop.commit(100)
    for _ in range(20):
        await loop.turn()
        loop.seconds += 1.0

    assert len(loop.evaluated) == 3
    assert group.lanes[1].lane.next_offset == 3
    assert loop.hub.evaluations.slow() == [(1, 1)]
    lane = loop.hub.evaluations.line.take()
    assert lane is not None
    assert lane.owned is group.lanes[1]


async def test_what_is_known_is_fed_as_far_as_it_goes() -> None:
    loop = Loop()
    group = loop.header_group(1, 0.040, cost=limits.EXPRESSION_COST_MAX + 1)
    loop.commit(5)
    await loop.turns()
    messages = loop.hub.cache.find(1, 0, 5) or ()
    for message in messages[:3]:
        loop.hub.evaluations.known.put("an expression", message, Outcome.MATCH)
    lane = loop.hub.evaluations.line.take()
    assert lane is not None
    lane.activate()
    await loop.turn()

    (instance,) = group.instances.values()
    assert (instance.unsettled, group.lanes[1].lane.next_offset) == (3, 3)
    assert len(loop.hub.evaluations.line) == 1


def test_what_is_known_has_a_bound_and_the_oldest_goes_first() -> None:
    known = KnownOutcomes(10)
    messages = [log_message(offset) for offset in range(30)]
    for message in messages:
        known.put("a", message, Outcome.NO_MATCH)

    assert len(known) == 10
    assert [known.find("a", message) for message in messages] == [None] * 20 + [Outcome.NO_MATCH] * 10


def test_what_is_known_is_of_one_expression_and_one_message_as_it_is_stored() -> None:
    known = KnownOutcomes()
    message, later = log_message(1), log_message(1)
    later.stored_at_us += 1
    known.put("a", message, Outcome.MATCH)

    assert known.find("a", log_message(1)) is Outcome.MATCH
    assert known.find("b", message) is None
    assert known.find("a", log_message(2)) is None
    assert known.find("a", log_message(1, queue_id=2)) is None
    # Where the log lost its end, another message is stored at the same place.
    assert known.find("a", later) is None


class NoTurns:
    """Stands for a group that gives its lanes no turns."""

    def activate(self, owned: OwnedLane) -> None:
        """Do nothing."""


def in_line(owned: OwnedLane) -> LaneInLine:
    return LaneInLine(owned, NoTurns())


async def test_in_the_line_groups_take_turns_and_in_a_group_its_lanes() -> None:
    loop = Loop()
    one, two = loop.header_group(1), loop.header_group(2)
    line = LaneLine()
    for _ in range(3):
        for owned in (one.lanes[1], one.lanes[2], two.lanes[1]):
            line.add(in_line(owned))
    assert len(line) == 3
    assert line.wake.is_set()
    taken = [line.take() for _ in range(4)]

    assert [lane and lane.owned for lane in taken] == [one.lanes[1], two.lanes[1], one.lanes[2], None]


async def test_a_lane_that_is_not_served_any_more_does_not_get_its_turn() -> None:
    loop = Loop()
    one, two = loop.header_group(1), loop.header_group(2)
    line = LaneLine()
    line.add(in_line(one.lanes[1]))
    line.add(in_line(two.lanes[1]))
    one.remove_lane(1)
    lane = line.take()

    assert lane is not None
    assert lane.owned is two.lanes[1]
    assert (line.take(), len(line)) == (None, 0)
