"""Turns are taken over the names, so that one who wants much does not keep one who wants little."""

from __future__ import annotations

import asyncio

import pytest

from msgbroker.server.log.fair_turns import FairTurns


class Work:
    """Turns that end when the test says so."""

    def __init__(self, at_once_max: int) -> None:
        self.turns = FairTurns(at_once_max)
        self.under_way: list[tuple[str, asyncio.Future[None]]] = []
        self.order: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    def want(self, name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(self._do(name))
        self.tasks.append(task)
        return task

    async def _do(self, name: str) -> None:
        async with self.turns.turn(name):
            self.order.append(name)
            end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.under_way.append((name, end))
            await end

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def end_one(self) -> None:
        self.under_way.pop(0)[1].set_result(None)
        await self.settle()


async def test_one_who_comes_late_and_wants_little_is_next() -> None:
    work = Work(2)
    for _ in range(10):
        work.want("many")
    await work.settle()
    work.want("one")
    await work.settle()
    await work.end_one()
    await work.end_one()

    assert work.order[:4] == ["many", "many", "many", "one"]
    while work.under_way:
        assert len(work.under_way) <= 2
        await work.end_one()
    assert len(work.order) == 11


async def test_turns_go_round() -> None:
    work = Work(1)
    for name in ("a", "a", "a", "b", "b", "c"):
        work.want(name)
    await work.settle()
    while work.under_way:
        await work.end_one()

    assert work.order == ["a", "a", "b", "c", "a", "b"]


@pytest.mark.parametrize("moment", ["waiting", "just called"])
async def test_one_who_goes_away_takes_no_turn_along(moment: str) -> None:
    work = Work(1)
    work.want("a")
    await work.settle()
    leaving = work.want("b")
    work.want("c")
    await work.settle()
    if moment == "just called":
        work.under_way.pop(0)[1].set_result(None)
        await asyncio.sleep(0)
    leaving.cancel()
    await work.settle()
    while work.under_way:
        await work.end_one()

    await asyncio.gather(*work.tasks, return_exceptions=True)
    assert work.order[-1] == "c"
    late = work.want("d")
    await work.settle()
    await work.end_one()
    await late
