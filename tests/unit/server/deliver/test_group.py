"""The driver of a group's lanes: where a read and a commit meet, nothing may be skipped."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Hashable, Sequence
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.engine.verdicts import Settlement, Verdict
from msgbroker.server.deliver.handing_out import BEHIND_MESSAGES
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.deliver.lanes.work import Work
from msgbroker.server.deliver.pump import PumpBudget
from msgbroker.server.deliver.reader import BATCH_BYTES_MAX, LANE_READY_BYTES_MAX, ReadyBytes
from msgbroker.server.log.cache import Block, ReadAgain
from msgbroker.v1 import subscriber_pb2
from tests.support.broker_builders import group_route, log_message, route
from tests.support.lane_builders import held
from tests.support.one_group import QUEUE, OneGroup


async def test_where_all_older_days_are_gone_what_comes_next_is_delivered() -> None:
    one = OneGroup()
    one.cache.learn_end(QUEUE, 50)
    one.pump()
    _, answer = await one.asked.get()
    # The read did not see this commit.
    one.commit(50, 3)
    answer.set_result(Block(50, 50, (), 0))
    await asyncio.gather(*one.tasks)

    assert one.pump() == 3
    assert one.lane.acked_offset == 50


async def test_a_gap_of_days_that_were_dropped_is_passed_and_what_is_behind_it_delivered() -> None:
    one = OneGroup()
    one.cache.learn_end(QUEUE, 53)
    one.pump()
    _, answer = await one.asked.get()
    one.commit(50, 3)
    answer.set_result(Block(50, 53, [log_message(n) for n in range(50, 53)], 30))
    await asyncio.gather(*one.tasks)

    assert one.pump() == 3
    assert one.lane.acked_offset == 50


async def test_a_lane_asks_for_one_read_at_a_time() -> None:
    one = OneGroup()
    one.cache.learn_end(QUEUE, 50)
    for _ in range(3):
        one.group.queue_went_on(QUEUE)
        one.pump()
    offset, answer = await one.asked.get()

    assert (offset, one.asked.empty()) == (0, True)
    answer.cancel()
    await asyncio.gather(*one.tasks, return_exceptions=True)


async def test_a_read_that_finds_nothing_passes_nothing() -> None:
    one = OneGroup()
    one.cache.learn_end(QUEUE, 50)
    one.pump()
    offset, answer = await one.asked.get()
    answer.set_result(Block(offset, offset, (), 0))
    await asyncio.gather(*one.tasks)

    assert one.lane.next_offset == 0


async def test_the_end_of_a_read_for_a_lane_that_was_given_up_takes_no_turn_from_its_successor() -> None:
    one = OneGroup()
    one.cache.learn_end(QUEUE, 50)
    one.pump()
    _, answer = await one.asked.get()
    one.group.remove_lane(QUEUE)
    answer.set_result(Block(0, 0, (), 0))
    await asyncio.gather(*one.tasks)

    assert not one.group._turns.lanes


def test_a_lane_holds_a_bounded_number_of_bytes_ready_for_a_slow_instance() -> None:
    one = OneGroup(credit=1)
    one.commit(0, 60, b"x" * 256 * 1024)
    delivered = 0
    while given := one.pump():
        assert one.lane.ready_bytes <= LANE_READY_BYTES_MAX
        delivered += given
        assert one.settle_all() == given

    assert delivered == 60
    assert one.group.ready.bytes_held == 0


def test_messages_with_many_small_headers_are_held_ready_by_what_they_cost_in_memory() -> None:
    ready = ReadyBytes(3 * LANE_READY_BYTES_MAX)
    groups = [OneGroup(credit=1, ready=ready) for _ in range(10)]
    headers = {f"h{number:02}": "1" for number in range(64)}
    for one in groups:
        one.commit(0, 500, b"x" * 600, headers)
        assert one.pump() == 1
    held_bytes = log_message(0, body=b"x" * 600, headers=headers).held_bytes

    assert held_bytes > 10_000
    assert [one.lane.ready_bytes for one in groups] == [one.lane.ready_count * held_bytes for one in groups]
    assert ready.bytes_held <= ready.bytes_max + len(groups) * BATCH_BYTES_MAX
    assert groups[0].lane.ready_bytes <= LANE_READY_BYTES_MAX


def test_small_messages_are_held_ready_in_batches() -> None:
    one = OneGroup(credit=1)
    one.commit(0, 500)

    assert one.pump() == 1
    assert one.lane.ready_count == 499


def test_a_message_larger_than_any_bound_is_handed_out() -> None:
    one = OneGroup(ready=ReadyBytes(0))
    one.commit(0, 2, b"x" * 2 * 1024 * 1024)

    assert one.pump() == 1
    one.settle_all()
    assert one.pump() == 1


def test_all_lanes_together_hold_a_bounded_number_of_bytes_ready_and_all_go_on() -> None:
    ready = ReadyBytes(2 * LANE_READY_BYTES_MAX)
    groups = [OneGroup(credit=1, ready=ready) for _ in range(10)]
    for one in groups:
        one.commit(0, 150, b"x" * 10 * 1024)
    assert [one.pump() for one in groups] == [1] * 10

    assert ready.bytes_held == sum(one.lane.ready_bytes for one in groups)
    assert ready.bytes_held <= ready.bytes_max + 10 * BATCH_BYTES_MAX
    # One that gets no more than its next batch at a time loses nothing by that.
    last = groups[-1]
    last.instance.credit = 100
    delivered = 0
    while last.instance.unsettled:
        delivered += last.settle_all()
        last.pump()
    assert delivered == 150
    groups[0].group.remove_lane(QUEUE)
    assert ready.bytes_held == sum(one.lane.ready_bytes for one in groups[1:])


def test_lanes_beyond_the_bound_hold_nothing_ready_but_what_is_taken_at_once() -> None:
    ready = ReadyBytes(LANE_READY_BYTES_MAX)
    groups = [OneGroup(credit=3, ready=ready) for _ in range(20)]
    for one in groups:
        one.commit(0, 150, b"x" * 10 * 1024)
    assert [one.pump() for one in groups] == [3] * 20

    assert ready.bytes_held <= ready.bytes_max + BATCH_BYTES_MAX
    assert sum(one.lane.ready_count > 0 for one in groups) < 10


def test_bodies_that_are_needed_again_are_bounded_as_well() -> None:
    one = OneGroup()
    one.group.lanes[QUEUE].topic = route(body_bytes_max=64 * 1024)
    one.commit(0, 100, b"x" * 64 * 1024)
    for _ in range(40):
        one.pump()
        one.write()
    assert one.instance.unsettled == 100
    one.settle_all(Verdict.RETRY)
    one.instance.credit = 1

    assert one.pump() == 1
    assert 0 < one.lane.ready_bytes <= LANE_READY_BYTES_MAX + 64 * 1024


LARGE = b"x" * 64 * 1024


def handed_over(count: int) -> OneGroup:
    """Return a group whose instance had *count* bodies of 64 KiB, and wants all of them again, one at a time.

    They were stored under a higher limit of the topic than there is now.
    """
    one = OneGroup()
    one.commit(0, count, LARGE)
    for _ in range(count):
        one.pump()
        one.write()
    assert one.instance.unsettled == count
    assert one.settle_all(Verdict.RETRY) == count
    one.instance.credit = 1
    return one


def test_bodies_over_the_topics_limit_that_are_in_memory_are_made_ready_as_far_as_there_is_room() -> None:
    one = handed_over(60)
    delivered = 0
    while given := one.pump():
        assert one.lane.ready_bytes <= LANE_READY_BYTES_MAX
        delivered += given
        one.group.settle(one.instance, Settlement(held(0, 9_999, 2, queue_id=QUEUE), Verdict.ACK, 0.0), 1.0)
        one.write()

    assert delivered == 60


async def test_bodies_over_the_topics_limit_are_read_as_far_as_there_is_room_and_the_rest_next() -> None:
    one = handed_over(60)
    one.cache.forget()
    read: list[int] = []

    async def read_again(
        queue_id: int, wanted: Sequence[tuple[int, int]], bytes_max: int, reader: Hashable
    ) -> ReadAgain:
        count = max(1, bytes_max // len(LARGE))
        read.append(min(count, len(wanted)) * len(LARGE))
        messages = [log_message(offset, body=LARGE) for offset, _ in wanted]
        return ReadAgain(messages[:count], [message.queue_offset for message in messages[count:]])

    one.cache.read_again = read_again  # type: ignore[method-assign]
    delivered = 0
    while one.lane.redelivery_count:
        delivered += one.pump()
        await asyncio.gather(*one.tasks)
        assert one.lane.ready_bytes <= LANE_READY_BYTES_MAX
        one.group.settle(one.instance, Settlement(held(0, 9_999, 2, queue_id=QUEUE), Verdict.ACK, 0.0), 1.0)
        one.write()

    assert (delivered, one.lane.counters.expired) == (60, 0)
    assert max(read) <= LANE_READY_BYTES_MAX


def test_a_lane_that_waits_for_nothing_is_not_looked_at_by_the_ticks() -> None:
    one = OneGroup()
    one.pump()
    one.group.tick(1.0)
    looks: list[float] = []
    one.lane.next_wakeup = lambda: looks.append(1.0)  # type: ignore[method-assign]
    for tenth in range(20):
        one.group.tick(1.0 + tenth / 10)

    assert looks == []


def test_a_lane_whose_message_is_not_answered_is_looked_at_however_quiet_it_was_before() -> None:
    one = OneGroup()
    one.pump()
    one.group.tick(1.0)
    one.commit(0, 1)
    assert one.pump() == 1
    one.write()
    for second in range(1, 62):
        one.group.tick(float(second))

    assert (one.instance.unsettled, one.lane.counters.timed_out) == (0, 1)


async def test_a_read_that_failed_is_tried_again_with_the_next_tick() -> None:
    one = OneGroup()
    one.cache.learn_end(QUEUE, 50)
    one.pump()
    _, answer = await one.asked.get()
    one.group.tick(1.0)
    answer.set_exception(StoreUnavailableError("away"))
    await asyncio.gather(*one.tasks)
    one.group.tick(2.0)
    one.pump()

    assert await one.asked.get()
    for task in one.tasks:
        task.cancel()
    await asyncio.gather(*one.tasks, return_exceptions=True)


async def test_the_alarm_of_a_body_that_cannot_be_fetched_goes_when_the_message_is_found_in_memory() -> None:
    one = OneGroup()
    seconds = 1.0
    one.aside._now = lambda: seconds
    one.commit(0, 1)
    assert one.pump() == 1
    one.settle_all(Verdict.RETRY)
    one.cache._tail.forget()
    with patch.object(one.cache, "read_again", side_effect=ValueError("a page of an index is damaged")):
        one.group.activate(one.group.lanes[QUEUE])
        one.pump()
        await asyncio.gather(*one.tasks)
    assert [alarm.thing for alarm in one.board.standing] == [Work.FETCHING]
    # Another group has read its block meanwhile.
    one.cache._keep((QUEUE, 0), Block(0, 1, [log_message(0)], 10))
    seconds += 100.0
    one.group.tick(seconds)

    assert one.pump() == 1
    assert one.board.standing == []


@given(seed=st.integers(), steps=st.integers(1, 60))
def test_ticks_miss_no_lane_that_waits_for_a_time(seed: int, steps: int) -> None:
    """Whatever happens, in any order: a look at every lane would find nothing that the watched ones have not."""
    chance = random.Random(seed)
    one = OneGroup(credit=3)
    now = 1.0
    for _ in range(steps):
        match chance.randrange(7):
            case 0:
                one.commit(one.cache.end_of(QUEUE), chance.randint(1, 3))
            case 1:
                one.group.pump(now, PumpBudget())
                if chance.random() < 0.8:
                    one.write(now)
            case 2:
                verdict, delay = chance.choice([*Verdict]), chance.choice([None, 0.0, 5.0])
                one.group.settle(
                    one.instance, Settlement(held(0, 9_999, chance.choice([1, 2]), queue_id=QUEUE), verdict, delay), now
                )
            case 3:
                one.group.detach(one.instance, now)
                one.instance = Instance("one", 3, 1_000_000)
                one.group.attach(one.instance, now)
            case 4:
                one.group.reroute(group_route(), {1: route()})
            case _:
                now += chance.choice([0.1, 1.0, 61.0])
                one.group.tick(now)
                wakeup = one.lane.next_wakeup()
                assert wakeup is None or wakeup > now
        assert one.lane.next_wakeup() is None or one.group._waits._watched.keys() == {QUEUE}


async def test_a_group_is_behind_while_it_has_room_and_must_read_what_is_not_in_memory() -> None:
    one = OneGroup()
    assert not one.is_behind()
    one.cache.learn_end(QUEUE, 50)
    one.pump()
    assert one.is_behind()
    _, answer = await one.asked.get()
    answer.set_result(Block(0, 50, [log_message(n) for n in range(50)], 30))
    await asyncio.gather(*one.tasks)
    one.cache.add({QUEUE: [log_message(n) for n in range(50, 60)]})

    assert not one.is_behind()


async def test_a_group_is_behind_while_it_has_room_and_much_is_in_memory_for_it() -> None:
    one = OneGroup(credit=10)
    one.commit(0, BEHIND_MESSAGES)
    assert not one.is_behind()
    one.commit(BEHIND_MESSAGES, BEHIND_MESSAGES)
    assert one.is_behind()

    # Its instance has all that it wants, and may keep it for days: publishers of anything else must not feel it.
    one.pump()
    assert not one.is_behind()
    one.settle_all()
    assert one.is_behind()
    one.group.detach(one.instance, 0.0)
    assert not one.is_behind()


@pytest.mark.parametrize("ack_timeout_seconds", [2.0, 600.0])
async def test_what_waits_as_the_ack_timeout_is_changed_is_written_after_that_was_told_and_has_that_time(
    ack_timeout_seconds: float,
) -> None:
    one = OneGroup()
    one.commit(0, 3)
    one.pump()
    one.group.reroute(dataclasses.replace(group_route(), ack_timeout_seconds=ack_timeout_seconds), {1: route()})
    told = subscriber_pb2.SubscribeResponse.FromString(one.instance.next_response())
    one.instance.written()
    one.pump()

    assert (told.attached.ack_timeout_ms, len(told.batches)) == (ack_timeout_seconds * 1_000, 0)
    assert [(batch.deadline, len(batch.wires)) for batch in one.instance.outbox] == [(1.0 + ack_timeout_seconds, 3)]
    assert one.instance.unsettled == 3


async def test_a_change_of_anything_else_is_not_told_to_instances() -> None:
    one = OneGroup()
    one.commit(0, 3)
    one.pump()
    one.group.reroute(dataclasses.replace(group_route(), attempts_max=5), {1: route()})

    assert one.instance._notices.take() == []
    assert one.write() == 3


@pytest.mark.parametrize("step", ["take", "settle", "expire", "return_instance"])
async def test_a_lane_whose_state_fails_is_given_up_and_nothing_else(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = OneGroup()
    one.commit(0, 3)
    if step != "take":
        assert one.pump() == 3

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("impossible")

    monkeypatch.setattr(one.lane, step, fail)
    one.pump()
    one.group.settle(one.instance, Settlement(held(0, 0, 1, queue_id=QUEUE), Verdict.ACK), 1.0)
    one.group.tick(1_000.0)
    one.group.detach(one.instance, 1_000.0)

    assert [str(error) for error in one.failed] == ["impossible"] * len(one.failed)
    assert one.failed
