"""A budget of bytes: a bound that holds however many wait, and holds that are released once, whatever happens."""

from __future__ import annotations

import asyncio

import pytest

from msgbroker.server.publish.byte_budget import ByteBudget, Hold


class Crowd:
    """So many who want to hold the same number of bytes, in their order."""

    def __init__(self, budget: ByteBudget, count: int, size_bytes: int) -> None:
        self._budget = budget
        self.let_in: list[int] = []
        self.holds: list[Hold] = []
        self.tasks = [asyncio.create_task(self._enter(number, size_bytes)) for number in range(count)]

    async def _enter(self, number: int, size_bytes: int) -> None:
        self.holds.append(await self._budget.hold(size_bytes))
        self.let_in.append(number)

    def leave(self, count: int) -> None:
        """Release the first holds that are left."""
        for hold in self.holds[:count]:
            hold.release()
        del self.holds[:count]


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_when_there_is_room_again_only_so_many_get_in_as_there_is_room_for_in_their_order() -> None:
    budget = ByteBudget(100)
    crowd = Crowd(budget, 300, 50)
    await turns()
    assert (crowd.let_in, budget.bytes_held) == ([0, 1], 100)

    crowd.leave(1)
    await turns()
    assert (crowd.let_in, budget.bytes_held) == ([0, 1, 2], 100)
    crowd.leave(2)
    await turns()
    assert (crowd.let_in, budget.bytes_held) == ([0, 1, 2, 3, 4], 100)
    for task in crowd.tasks:
        task.cancel()


async def test_nobody_gets_in_before_those_who_wait() -> None:
    budget = ByteBudget(100)
    first, _ = budget.hold_at_once(90), budget.hold_at_once(10)
    crowd = Crowd(budget, 1, 200)
    await turns()
    first.release()
    # It has its turn, if it has not taken it yet.
    assert (budget.bytes_held, budget.is_full) == (210, True)
    await turns()
    assert crowd.let_in == [0]


async def test_whoever_goes_away_while_waiting_leaves_its_turn_to_the_next() -> None:
    budget = ByteBudget(100)
    first = budget.hold_at_once(100)
    crowd = Crowd(budget, 3, 100)
    await turns()
    crowd.tasks[0].cancel()
    await turns()
    first.release()
    # This one was let in, and goes away before it knows.
    crowd.tasks[1].cancel()
    await turns()

    assert (crowd.let_in, budget.bytes_held) == ([2], 100)
    crowd.leave(1)
    assert (budget.bytes_held, budget.is_full) == (0, False)


async def test_who_asks_for_little_does_not_wait_for_all_who_asked_for_much() -> None:
    budget = ByteBudget(100)
    first = budget.hold_at_once(100)
    large, small = Crowd(budget, 10, 1_000), Crowd(budget, 1, 10)
    await turns()
    first.release()
    await turns()

    assert (small.let_in, large.let_in) == ([0], [0])


async def test_who_asks_for_much_has_its_turn_however_many_ask_for_little() -> None:
    budget = ByteBudget(100)
    first = budget.hold_at_once(100)
    large = Crowd(budget, 1, 1_000)
    crowds: list[Crowd] = []
    let_in = 0
    for _ in range(200):
        small = Crowd(budget, 2, 50)
        crowds.append(small)
        await turns()
        first.release()
        for crowd in crowds:
            crowd.leave(2)
        await turns()
        let_in += len(small.let_in)
        if large.let_in:
            break

    # Twice its size, with two of them at a time.
    assert large.let_in == [0]
    assert 20 <= let_in <= 50


async def test_those_who_wait_and_go_away_leave_nothing_behind() -> None:
    budget = ByteBudget(100)
    first = budget.hold_at_once(100)
    crowd = Crowd(budget, 50, 10)
    await turns()
    for task in crowd.tasks:
        task.cancel()
    await turns()

    first.release()
    assert (budget.bytes_held, budget.is_full, crowd.let_in) == (0, False, [])


async def test_what_is_larger_than_the_budget_gets_in_alone() -> None:
    budget = ByteBudget(100)
    crowd = Crowd(budget, 2, 1_000)
    await turns()
    assert crowd.let_in == [0]
    crowd.leave(1)
    await turns()
    assert crowd.let_in == [0, 1]


def test_a_hold_is_released_once_with_all_that_it_grew_by() -> None:
    budget = ByteBudget(100)
    other, hold = budget.hold_at_once(5), budget.hold_at_once(10)
    hold.grow(20)
    assert budget.bytes_held == 35
    hold.release()
    hold.release()

    assert budget.bytes_held == 5
    other.release()
    assert budget.bytes_held == 0


def test_whatever_is_raised_while_bytes_are_held_releases_them() -> None:
    budget = ByteBudget(100)

    def fail_after_growing() -> None:
        with budget.hold_at_once(10) as hold:
            hold.grow(5)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_after_growing()
    assert budget.bytes_held == 0


def test_what_was_moved_is_released_by_its_new_owner_alone() -> None:
    budget = ByteBudget(100)
    with budget.hold_at_once(10) as hold:
        moved = hold.moved()

    assert budget.bytes_held == 10
    hold.release()
    assert budget.bytes_held == 10
    moved.release()
    assert budget.bytes_held == 0
