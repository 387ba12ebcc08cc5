"""The turns of groups: one budget for all that are marked, and everybody's turn comes."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import warnings

from msgbroker.server.deliver.pump import Pump, PumpBudget
from msgbroker.server.deliver.watched_tasks import WatchedTasks
from tests.support.broker_builders import group_route


class Backlog:
    """Stands for a group with so many messages to hand out, in batches."""

    def __init__(self, group_id: int, messages: int) -> None:
        self.route = dataclasses.replace(group_route(), group_id=group_id)
        self.messages = messages
        self.turns = 0

    def pump(self, _: float, budget: PumpBudget) -> bool:
        self.turns += 1
        while self.messages and budget.messages > 0:
            batch = min(self.messages, 256)
            self.messages -= batch
            budget.messages -= batch
        return self.messages > 0


def pump_with(groups: list[Backlog], turn_messages_max: int) -> Pump:
    pump = Pump(WatchedTasks(), turn_messages_max=turn_messages_max)
    for group in groups:
        pump.mark(group)
    return pump


async def next_turn() -> None:
    await asyncio.sleep(0)


async def test_a_turn_hands_out_a_bounded_number_however_many_groups_are_marked() -> None:
    groups = [Backlog(number, 1_000) for number in range(1_000)]
    pump_with(groups, 4_000)
    await next_turn()

    assert 4_000 <= 1_000 * 1_000 - sum(group.messages for group in groups) < 4_000 + 256


async def test_the_turn_goes_round_so_that_no_group_waits_for_another_to_end() -> None:
    groups = [Backlog(number, 1_000) for number in range(50)]
    pump_with(groups, 1_024)
    for _ in range(13):
        await next_turn()

    assert {group.turns for group in groups} <= {1, 2}
    for _ in range(200):
        await next_turn()
    assert [group.messages for group in groups] == [0] * 50


async def test_few_groups_share_what_a_turn_has() -> None:
    groups = [Backlog(1, 10_000), Backlog(2, 10_000), Backlog(3, 10)]
    pump = pump_with(groups, 3_072)
    await next_turn()

    assert [group.messages for group in groups] == [10_000 - 1_024, 10_000 - 1_024, 0]
    assert pump._marked.keys() == {1, 2}


def test_a_turn_that_does_not_come_because_the_event_loop_ends_leaves_nothing_behind() -> None:
    loop = asyncio.new_event_loop()
    # In its last round: what that asks for is never run.
    loop.call_soon(pump_with, [Backlog(1, 1)], 1_000)
    loop.stop()
    loop.run_forever()
    loop.close()

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        del loop
        gc.collect()
    assert [str(each.message) for each in warned] == []
