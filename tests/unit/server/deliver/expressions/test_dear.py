"""Expressions evaluated in the helper process: each message once, none settled for being dear, nobody else held up."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Hashable

import pytest
from structlog.testing import capture_logs

from confdb.routes import Headers
from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.engine.matching import Outcome
from msgbroker.server.deliver.expressions.helper_frames import HelperBounds
from msgbroker.server.deliver.expressions.helper_process import HelperConfig, HelperDiedError
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.log.cache import Block
from msgdb.reports.alarms import AlarmKind
from msgdb.reports.expression_failures import ExpressionFailure
from tests.support.broker_builders import group_route, log_message, route
from tests.support.dear_scene import QUEUE, WANTED, Brokerlike, Recording, dear, given
from tests.support.eventually import eventually
from tests.support.helper_questions import FOR_EVER, LONG

pytestmark = pytest.mark.slow


async def test_each_message_is_evaluated_once_in_the_helper_and_the_group_gets_what_matches() -> None:
    async with Brokerlike.running() as broker:
        group = broker.group(1)
        broker.commit(100)
        await broker.all_read(group)
        broker.commit(20)
        await broker.all_read(group)

        assert given(group) == 12
        assert set(broker.helper.asked.values()) == {1}
        assert len(broker.helper.asked) == 120


async def test_without_such_an_expression_there_is_no_helper_process() -> None:
    async with Brokerlike.running() as broker:
        group = broker.group(1, dear(cost=10, predicate=lambda _: True))
        broker.commit(100)
        await broker.all_read(group)

        assert broker.helper.pid is None


async def test_an_expression_that_fails_on_a_message_does_not_match_and_is_counted() -> None:
    async with Brokerlike.running() as broker:
        group = broker.group(
            1, dear(f"headers.missing == '' || {WANTED}"), dear("headers.missing == ''", event_code="*")
        )
        broker.commit(10)
        await broker.all_read(group)

        assert given(group) == 1
        assert group.lanes[QUEUE].failed_evaluations == 2 * 9


async def test_what_was_missing_where_the_helper_evaluated_is_told_here() -> None:
    async with Brokerlike.running() as broker:
        group = broker.group(1, dear("headers.region == 'hz'", subscription_id=7))
        broker.commit(10)
        await broker.all_read(group)

        assert broker.hub.evaluations.failures.take(10) == [
            ExpressionFailure(1, 7, 10, "region", 'NOT_FOUND: Key not found in map : "region"')
        ]


async def test_direct_subscriptions_of_the_same_group_and_topic_need_no_helper() -> None:
    async with Brokerlike.running() as broker:
        broker.helper.is_open.clear()
        direct = dataclasses.replace(group_route().subscriptions[0], event_code="*")
        group = broker.group(1, dear(), direct)
        broker.commit(10)
        await broker.all_read(group)

        assert (given(group), broker.helper.requests) == (10, [])


async def test_all_else_goes_on_while_the_helper_is_at_it() -> None:
    async with Brokerlike.running() as broker:
        broker.helper.is_open.clear()
        slow, quick = broker.group(1), broker.group(2, dear(cost=10, predicate=lambda _: True))
        direct = broker.group(3, group_route().subscriptions[0])
        broker.commit(50)
        await eventually(lambda: broker.helper.requests)
        await broker.all_read(quick)
        await broker.all_read(direct)

        assert (given(slow), given(quick), given(direct)) == (0, 50, 50)
        assert not broker.hub.is_behind({route().topic_id})
        broker.helper.is_open.set()
        await broker.all_read(slow)


async def test_what_came_back_when_a_lane_was_closed_is_not_evaluated_again_for_its_next_claim() -> None:
    async with Brokerlike.running() as broker:
        broker.helper.is_open.clear()
        group = broker.group(1)
        broker.commit(8)
        await eventually(lambda: broker.helper.requests)
        broker.hub.close_lane(group, QUEUE)
        broker.helper.is_open.set()
        await eventually(lambda: len(broker.hub.evaluations.known) == 8)
        broker.open(group)
        await broker.all_read(group)

        assert given(group) == 1
        assert set(broker.helper.asked.values()) == {1}


async def test_a_lane_that_lapses_again_and_again_has_each_message_evaluated_once() -> None:
    async with Brokerlike.running() as broker:
        group = broker.group(1)
        broker.commit(60)
        for _ in range(20):
            asked, lane = len(broker.helper.requests), group.lanes[QUEUE].lane
            await eventually(lambda: len(broker.helper.requests) > asked or lane.next_offset == 60)  # noqa: B023
            broker.hub.close_lane(group, QUEUE)
            broker.open(group)
        await broker.all_read(group)

        assert set(broker.helper.asked.values()) == {1}


async def test_groups_with_the_same_expression_on_the_same_topic_ask_once() -> None:
    async with Brokerlike.running() as broker:
        one = broker.group(1)
        broker.commit(50)
        await broker.all_read(one)
        two = broker.group(2)
        await broker.all_read(two)

        assert (given(one), given(two)) == (5, 5)
        assert set(broker.helper.asked.values()) == {1}


async def test_when_the_helper_dies_once_it_is_asked_again_and_nobody_is_alarmed() -> None:
    async with Brokerlike.running() as broker:
        deaths = iter([HelperDiedError("killed")])
        broker.helper.fault = lambda _: next(deaths, None)
        group = broker.group(1)
        broker.commit(100)
        await broker.all_read(group)

        assert given(group) == 10
        assert set(broker.helper.asked.values()) == {1}
        assert broker.board.standing == []
        # With care, up to where it may have been that it died of.
        assert broker.helper.requests[:3] == [8, 1, 1]
        assert max(broker.helper.requests[8:]) > 1


async def test_a_message_that_cannot_be_finished_sets_its_lane_aside_and_nothing_is_passed() -> None:
    bounds = HelperBounds(cpu_seconds_max=0.3, niceness=0)
    helper = Recording(HelperConfig(bounds, restart_seconds_min=0.0))
    # Half a minute on the one message, nothing on the others.
    expression = f'({FOR_EVER}) && "long" in headers || !("long" in headers)'
    async with Brokerlike.running(helper) as broker:
        group, other = broker.group(1, dear(expression)), broker.group(2, dear())
        broker.commit(3)
        broker.commit(1, headers={**LONG, "long": ""})
        broker.commit(3)
        alarm = await broker.alarm(AlarmKind.LANE_SET_ASIDE)
        await broker.all_read(other)

        assert "takes more than 0.3 s" in alarm.detail
        assert alarm.thing == f"group SG_1, topic TP_TRADE, queue {QUEUE}: its expressions"
        assert (alarm.group_id, alarm.topic_id, alarm.queue_id) == (1, 1, QUEUE)
        lane = group.lanes[QUEUE].lane
        # All before it are decided, and it is neither matched nor settled.
        assert (given(group), lane.next_offset, lane.acked_offset) == (3, 3, 0)
        assert "long" not in {number for _, number in helper.asked}


async def test_a_lane_that_was_set_aside_is_tried_again_and_goes_on_when_it_can_be_finished() -> None:
    async with Brokerlike.running() as broker:
        is_broken = True
        broker.helper.fault = lambda _: HelperDiedError("again") if is_broken else None
        group = broker.group(1)
        broker.commit(10)
        await broker.alarm(AlarmKind.LANE_SET_ASIDE)
        tried = len(broker.helper.requests)
        broker.hub.queue_went_on(QUEUE)
        # It has its time to wait, whatever happens.
        await eventually(lambda: not broker.hub.pump._marked and not len(broker.hub.evaluations.line))
        assert len(broker.helper.requests) == tried
        broker.seconds += 1.5
        broker.hub.evaluations.line.wake.set()
        await eventually(lambda: len(broker.helper.requests) == tried + 1)
        assert [alarm.kind for alarm in broker.board.standing] == [AlarmKind.LANE_SET_ASIDE]
        assert group.lanes[QUEUE].lane.next_offset == 0
        is_broken = False
        broker.seconds += 10.0
        broker.hub.evaluations.line.wake.set()
        await broker.all_read(group)

        assert given(group) == 1
        await eventually(lambda: broker.board.standing == [])


async def test_a_failure_nobody_foresaw_sets_the_lane_aside_and_the_others_go_on() -> None:
    async with Brokerlike.running() as broker:
        broker.helper.fault = lambda request: ValueError("odd") if request.expressions[0] == WANTED else None
        group, other = broker.group(1), broker.group(2, dear("true"))
        broker.commit(10)
        alarm = await broker.alarm(AlarmKind.LANE_SET_ASIDE)
        await broker.all_read(other)

        assert alarm.detail == "ValueError: odd"
        assert (given(group), group.lanes[QUEUE].lane.next_offset, given(other)) == (0, 0, 10)


async def test_the_event_loop_is_never_asked_to_do_more_than_a_little_for_a_request() -> None:
    async with Brokerlike.running() as broker:
        large = {f"h{number}": "v" * 55 for number in range(63)}
        group = broker.group(1, dear("true"))
        broker.commit(300, headers=large)
        await broker.all_read(group)
        small = broker.group(2, dear("true || true"))
        broker.commit(1_000)
        await broker.all_read(small)

        assert max(broker.helper.requests) <= 256
        assert broker.helper.requests[0] == 8
        # 4 KB of headers each: some sixteen in a request of 64 KiB.
        assert max(broker.helper.requests[:10]) <= 19


async def test_messages_that_are_not_in_memory_any_more_are_read_when_it_is_their_turn() -> None:
    async with Brokerlike.running() as broker:
        reads: list[int] = []

        async def read(queue_id: int, offset: int, _reader: Hashable) -> Block:
            reads.append(offset)
            if len(reads) == 2:
                raise StoreUnavailableError("away")
            messages = [log_message(number) for number in range(offset, 20)]
            for message in messages:
                message.headers = Headers({"number": f"1-{message.queue_offset}"})
            block = Block(offset, 20, messages, 1_000)
            broker.hub.cache._keep((queue_id, 0), block)
            if len(reads) == 1:
                # Read, asked for, and forgotten before its turn.
                asyncio.get_running_loop().call_soon(broker.hub.cache._blocks.clear)
            return block

        broker.hub.cache.read = read  # type: ignore[assignment, method-assign]
        broker.hub.cache.learn_end(QUEUE, 20)
        group = broker.group(1)
        ticking = asyncio.create_task(_tick(broker.hub))
        await broker.all_read(group)
        ticking.cancel()

        assert given(group) == 2
        assert set(broker.helper.asked.values()) == {1}


async def _tick(hub: DeliveryHub) -> None:
    while True:
        hub.tick_once(1.0)
        await asyncio.sleep(0.01)


async def test_a_lane_that_was_set_aside_goes_on_when_the_expressions_turn_out_cheap() -> None:
    async with Brokerlike.running() as broker:
        group = broker.group(1, dear(cost=10, predicate=lambda _: True))
        measured = broker.hub.evaluations.measured(group.lanes[QUEUE])
        for _ in range(3):
            measured.add_slice(0.010, 1)
        broker.helper.fault = lambda _: HelperDiedError("again")
        broker.commit(10)
        await broker.alarm(AlarmKind.LANE_SET_ASIDE)
        # By what another lane of the same group and topic took.
        measured.add_elsewhere(0.000_1, 1_000, 0.000_01)
        broker.hub.evaluations.line.wake.set()
        await broker.all_read(group)

        assert given(group) == 10
        assert broker.board.standing == []


async def test_an_expression_that_is_cheap_after_all_comes_back_to_the_event_loop() -> None:
    async with Brokerlike.running() as broker:
        group = broker.group(1, dear(cost=10, predicate=lambda headers: headers["number"].endswith("0")))
        measured = broker.hub.evaluations.measured(group.lanes[QUEUE])
        for _ in range(3):
            measured.add_slice(0.010, 1)
        with capture_logs() as logs:
            broker.commit(1_500)
            await broker.all_read(group)
            assert not measured.is_slow
            asked = len(broker.helper.asked)
            broker.commit(10)
            await broker.all_read(group)

        assert (given(group), len(broker.helper.asked)) == (151, asked)
        assert [line["event"] for line in logs if line["event"].startswith("expressions")] == ["expressions.moved_back"]


async def test_what_is_left_over_of_a_change_of_expressions_does_no_harm() -> None:
    async with Brokerlike.running() as broker:
        broker.helper.is_open.clear()
        group = broker.group(1)
        broker.commit(20)
        await eventually(lambda: broker.helper.requests)
        other = dataclasses.replace(group.route, subscriptions=(dear('headers.number.endsWith("1")'),))
        group.reroute(other, {1: route()})
        broker.helper.is_open.set()
        await broker.all_read(group)

        assert given(group) == 2
        known = broker.hub.evaluations.known
        (first, *_) = broker.hub.cache.find(QUEUE, 0, 1) or ()
        assert known.find(WANTED, first) in {Outcome.MATCH, None}
