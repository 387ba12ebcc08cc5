"""Time for expressions on the event loop: in slices, in turns, and everybody else goes on. The clock is the test's."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter

import pytest

from confdb.routes import SubscriptionMode
from msgbroker.server.deliver.expressions.evaluations import LONG_SECONDS
from msgbroker.server.deliver.expressions.turns import TURN_SECONDS, EvaluationTurns, TimeSlice
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.handing_out import BEHIND_MESSAGES
from tests.support.broker_builders import PAID, route
from tests.support.evaluation_loop import ONE_MESSAGE, Loop

SLICE_MESSAGES = TURN_SECONDS / 4 / ONE_MESSAGE + 1


def delivered(group: GroupDelivery) -> int:
    (instance,) = group.instances.values()
    return instance.unsettled


async def test_many_groups_with_moderate_expressions_do_not_hold_the_event_loop_up() -> None:
    loop = Loop()
    groups = [loop.header_group(number) for number in range(300)]
    loop.commit(10)
    loop.commit(10, queue_id=2)
    await loop.turns()

    assert loop.most_in_a_turn <= TURN_SECONDS + ONE_MESSAGE * 1.001
    assert set(loop.evaluated.values()) == {1}
    assert len(loop.evaluated) == 300 * 20
    assert {delivered(group) for group in groups} == {2}


async def test_no_group_evaluates_twice_while_another_waits_for_its_first_time() -> None:
    loop = Loop()
    for number in range(20):
        loop.header_group(number)
    loop.commit(100)
    for _ in range(200):
        await loop.turn()
        loop.seconds += TURN_SECONDS
        # What is marked again and again by new messages gets no more than those that wait.
        loop.commit(1)
        done = Counter(group_id for group_id, _ in loop.evaluated)
        # The last slice of a turn may be a short one.
        assert max(done.values()) <= 2 * min(done[number] for number in range(20)) + 2 * SLICE_MESSAGES


async def test_the_lanes_of_a_group_take_turns_as_well() -> None:
    loop = Loop()
    loop.header_group(1)
    loop.commit(100)
    loop.commit(100, queue_id=2)
    for _ in range(10):
        await loop.turn()
        loop.seconds += TURN_SECONDS

    by_queue = Counter(number[0] for _, number in loop.evaluated)
    assert abs(by_queue["1"] - by_queue["2"]) <= 2 * SLICE_MESSAGES
    assert by_queue.total() >= 90


async def test_who_needs_no_expression_waits_for_nobody_elses() -> None:
    loop = Loop()
    for number in range(50):
        loop.header_group(number)
    direct = loop.direct_group(99)
    loop.commit(200)
    await loop.turn()

    assert delivered(direct) == 200


async def test_of_a_group_with_both_what_takes_no_expression_waits_for_no_time() -> None:
    loop = Loop()
    for number in range(10):
        loop.header_group(number)
    both = loop.header_group(99)
    (by_header,) = both.route.subscriptions
    direct = dataclasses.replace(by_header, mode=SubscriptionMode.DIRECT, expression=None, predicate=None)
    other_code = dataclasses.replace(by_header, event_code="EC_OTHER")
    both.reroute(dataclasses.replace(both.route, subscriptions=(other_code, direct)), {1: route()})
    loop.commit(100)
    await loop.turn()

    assert delivered(both) == 100
    assert 99 not in loop.hub.pump._turns._line


async def test_when_a_turn_was_used_up_evaluating_rests_for_as_long() -> None:
    loop = Loop()
    loop.header_group(1)
    loop.commit(1_000)
    assert await loop.turn() >= TURN_SECONDS
    assert await loop.turn() == 0.0
    loop.seconds += TURN_SECONDS * 0.9
    assert await loop.turn() == 0.0
    loop.seconds += TURN_SECONDS * 0.2

    assert await loop.turn() >= TURN_SECONDS


async def test_for_expressions_that_take_no_longer_than_all_else_nothing_rests() -> None:
    loop = Loop()
    loop.header_group(1, LONG_SECONDS / 4)
    loop.commit(10_000)

    assert [await loop.turn() >= TURN_SECONDS for _ in range(3)] == [True, True, True]
    assert loop.most_in_a_turn <= TURN_SECONDS + LONG_SECONDS


async def test_evaluating_rests_for_what_long_expressions_took_of_a_turn() -> None:
    loop = Loop()
    loop.header_group(1, LONG_SECONDS * 5)
    loop.header_group(2, LONG_SECONDS / 4)
    loop.commit(10_000)
    assert await loop.turn() >= TURN_SECONDS
    assert await loop.turn() == 0.0
    # Two of four slices were theirs.
    loop.seconds += TURN_SECONDS / 2 + LONG_SECONDS * 10

    assert await loop.turn() >= TURN_SECONDS


async def test_no_more_is_looked_at_than_there_is_time_for() -> None:
    loop = Loop()
    group = loop.header_group(1, 0.000_01)
    loop.commit(1_000)
    await loop.turns()
    evaluations, owned = loop.hub.evaluations, group.lanes[1]

    assert evaluations.reach(owned, TimeSlice(0.000_1)) == 64
    assert evaluations.reach(owned, TimeSlice(TURN_SECONDS)) == pytest.approx(200, rel=0.1)
    # Nothing is known of it yet.
    assert evaluations.reach(loop.header_group(2).lanes[1], TimeSlice(TURN_SECONDS)) == 2_000


async def test_what_waits_for_time_goes_on_by_itself() -> None:
    loop = Loop()
    group = loop.header_group(1)
    loop.commit(100)
    real = asyncio.get_running_loop()
    loop.hub.pump._turns = EvaluationTurns(now=real.time)
    async with asyncio.timeout(20):
        while delivered(group) < 10:
            await asyncio.sleep(0)

    assert set(loop.evaluated.values()) == {1}


async def test_a_little_evaluating_is_done_at_once_and_nobody_waits() -> None:
    loop = Loop()
    groups = [loop.header_group(number, 0.000_005) for number in range(10)]
    loop.commit(10)
    await loop.turn()

    assert {delivered(group) for group in groups} == {1}
    assert not loop.hub.pump._turns._line


async def test_an_evaluation_that_takes_far_too_long_is_alone_in_its_turn() -> None:
    loop = Loop()
    loop.header_group(1, 0.040)
    loop.header_group(2, 0.040)
    loop.commit(2)
    spent = [await loop.turn() for _ in range(3)]

    # And then the event loop is left to others for as long.
    assert spent == [pytest.approx(0.040), 0.0, 0.0]


async def test_what_a_lane_that_was_closed_had_waited_for_is_forgotten() -> None:
    loop = Loop()
    group = loop.header_group(1)
    loop.commit(100)
    await loop.turn()
    loop.hub.close_lane(group, 1)
    loop.hub.close_lane(group, 2)
    evaluated = loop.evaluated.total()
    loop.seconds += 1.0
    await loop.turns()

    assert loop.evaluated.total() == evaluated


async def test_a_group_without_room_evaluates_nothing_and_goes_on_when_it_has_room() -> None:
    loop = Loop()
    group = loop.header_group(1)
    (instance,) = group.instances.values()
    instance.is_paused = True
    loop.commit(100)
    await loop.turns()
    assert not loop.evaluated

    instance.is_paused = False
    loop.hub.pump.mark(group)
    await loop.turns()
    assert delivered(group) == 10


async def test_publishers_do_not_wait_for_a_group_that_its_own_expressions_hold_up() -> None:
    loop = Loop()
    loop.commit(3 * BEHIND_MESSAGES)
    loop.header_group(1, 0.000_005)
    assert loop.hub.is_behind({route().topic_id})
    dear = loop.header_group(2, 0.000_2)
    dear_slots = list(dear.lanes.values())
    for _ in range(10):
        await loop.turn()
        loop.seconds += TURN_SECONDS

    assert not dear_slots[1].is_dear
    assert dear_slots[0].is_dear
    loop.commit(3 * BEHIND_MESSAGES)
    assert not dear.is_behind({route().topic_id})


async def test_other_expressions_than_those_that_were_measured_begin_with_a_clean_slate() -> None:
    loop = Loop()
    group = loop.header_group(1, 0.000_2)
    loop.commit(5)
    await loop.turns()
    owned = group.lanes[1]
    assert loop.hub.evaluations.measured(owned).seconds_each == pytest.approx(0.000_2, rel=0.01)

    (subscription,) = group.route.subscriptions
    changed = dataclasses.replace(group.route, subscriptions=(dataclasses.replace(subscription, expression="other"),))
    group.reroute(changed, {1: route()})

    assert loop.hub.evaluations.measured(owned).seconds_each == 0.0
    assert subscription.event_code == PAID
