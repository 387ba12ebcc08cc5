"""Tasks that wait in line: nobody is overtaken, and no turn is lost with a task that is cancelled."""

from __future__ import annotations

import asyncio

from msgbroker.client.handle.waiters import Waiters


async def in_line(waiters: Waiters, *names: str) -> tuple[list[asyncio.Task[None]], list[str]]:
    """Have tasks of these names wait; return them, and the names of those who have had their turn."""
    had: list[str] = []

    async def wait(name: str) -> None:
        await waiters.wait(waiters.wake_next)
        had.append(name)

    tasks = [asyncio.create_task(wait(name)) for name in names]
    await asyncio.sleep(0)
    return tasks, had


async def test_who_came_first_is_woken_first_and_nobody_where_nobody_waits() -> None:
    waiters = Waiters()
    tasks, had = await in_line(waiters, "first", "second")

    assert [waiters.wake_next() for _ in range(3)] == [True, True, False]
    await asyncio.gather(*tasks)
    assert had == ["first", "second"]


async def test_who_waits_no_longer_is_passed_over() -> None:
    waiters = Waiters()
    (first, second), had = await in_line(waiters, "first", "second")
    first.cancel()
    await asyncio.wait([first])

    assert waiters.wake_next()
    await second
    assert had == ["second"]


async def test_who_is_cancelled_in_the_moment_of_its_turn_passes_it_on() -> None:
    waiters = Waiters()
    (first, second), had = await in_line(waiters, "first", "second")
    assert waiters.wake_next()
    first.cancel()

    await asyncio.wait_for(second, 10)
    assert (first.cancelled(), had) == (True, ["second"])
