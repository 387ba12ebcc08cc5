"""What operators hear of expressions that are dear: alarms, and when they go."""

from __future__ import annotations

import dataclasses
from unittest.mock import AsyncMock

import pytest

from msgbroker.server.deliver.expressions.helper_process import HelperDiedError
from msgbroker.server.report import slow_expressions
from msgdb.reports.alarms import AlarmKind
from tests.support.broker_builders import route
from tests.support.dear_scene import QUEUE, Brokerlike, dear, given
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("change", ["closed", "another expression"])
async def test_the_alarm_of_a_lane_that_was_set_aside_goes_with_what_it_was_about(change: str) -> None:
    async with Brokerlike.running() as broker:
        broker.helper.fault = lambda _: HelperDiedError("again")
        group = broker.group(1)
        broker.commit(10)
        await broker.alarm(AlarmKind.LANE_SET_ASIDE)
        if change == "closed":
            broker.hub.close_lane(group, QUEUE)
        else:
            cheap = dataclasses.replace(group.route, subscriptions=(dear("true", cost=1, predicate=lambda _: True),))
            group.reroute(cheap, {1: route()})
        broker.hub.evaluations.line.wake.set()

        await eventually(lambda: broker.board.standing == [])
        if change != "closed":
            await broker.all_read(group)
            assert given(group) == 10


async def test_what_is_asked_of_the_helper_is_said_by_an_alarm_until_the_subscription_goes() -> None:
    async with Brokerlike.running() as broker:
        group = broker.group(1)
        assert slow_expressions(broker.hub) == []
        broker.helper.is_open.clear()
        broker.commit(50)
        await eventually(lambda: broker.helper.requests)
        (alarm,) = slow_expressions(broker.hub)
        assert (alarm.kind, alarm.thing) == (AlarmKind.EXPRESSION_SLOW, "group SG_1, topic TP_TRADE")
        assert (alarm.group_id, alarm.topic_id, alarm.queue_id) == (1, 1, None)
        assert "not measured yet" in alarm.detail
        broker.helper.is_open.set()
        await broker.all_read(group)
        (alarm,) = slow_expressions(broker.hub)
        assert "an evaluation takes about " in alarm.detail
        broker.hub.evaluations.problem = "it cannot be started"
        (alarm,) = slow_expressions(broker.hub)
        assert alarm.detail.endswith("; it cannot be started")

        cheap = dataclasses.replace(group.route, subscriptions=(dear("true", cost=1, predicate=lambda _: True),))
        group.reroute(cheap, {1: route()})
        assert slow_expressions(broker.hub) == []
        group.reroute(dataclasses.replace(group.route, subscriptions=(dear(),)), {1: route()})
        broker.commit(1)
        await broker.all_read(group)
        assert len(slow_expressions(broker.hub)) == 1
        broker.hub.close_lane(group, QUEUE)
        assert slow_expressions(broker.hub) == []


async def test_each_group_and_topic_has_its_alarm() -> None:
    async with Brokerlike.running() as broker:
        groups = [broker.group(number) for number in range(1, 6)]
        broker.commit(10)
        for group in groups:
            await broker.all_read(group)

        assert {alarm.group_id for alarm in slow_expressions(broker.hub)} == {1, 2, 3, 4, 5}


async def test_the_alarm_of_a_lane_that_stands_in_line_again_goes_with_the_lane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Brokerlike.running() as broker:
        group = broker.group(1)
        owned = group.lanes[QUEUE]
        with monkeypatch.context() as broken:
            broken.setattr(broker.expressions, "_messages", AsyncMock(side_effect=ValueError("damaged")))
            broker.commit(10)
            await broker.alarm(AlarmKind.LANE_SET_ASIDE)
        # The helper is being started again: whoever stands in line waits there.
        monkeypatch.setattr(broker.helper, "is_ready", AsyncMock(return_value=False))
        broker.seconds += 1_000
        broker.hub.evaluations.line.wake.set()
        await eventually(lambda: owned not in broker.expressions._waiting and len(broker.hub.evaluations.line) == 1)
        broker.hub.close_lane(group, QUEUE)
        broker.hub.evaluations.line.wake.set()

        await eventually(lambda: not broker.board.standing)
