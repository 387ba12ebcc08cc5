"""What every loop of the broker waits with."""

from __future__ import annotations

import asyncio

import pytest

from msgbroker.server.loops import woken


async def test_a_loop_goes_on_when_it_is_woken_and_the_wake_is_used_up() -> None:
    stop, wake = asyncio.Event(), asyncio.Event()
    waiting = asyncio.ensure_future(woken(stop, wake))
    await asyncio.sleep(0)

    wake.set()
    await waiting

    assert not wake.is_set()


async def test_a_wake_from_before_is_not_lost() -> None:
    stop, wake = asyncio.Event(), asyncio.Event()
    wake.set()

    await woken(stop, wake)

    assert not wake.is_set()


async def test_a_loop_that_nobody_wakes_ends_when_it_is_stopped() -> None:
    stop, wake = asyncio.Event(), asyncio.Event()
    waiting = asyncio.ensure_future(woken(stop, wake))
    await asyncio.sleep(0)

    stop.set()
    await waiting

    assert stop.is_set()


async def test_a_loop_that_nobody_wakes_goes_on_after_its_time() -> None:
    await woken(asyncio.Event(), asyncio.Event(), 0.001)


async def test_a_loop_that_is_woken_all_the_time_leaves_others_their_turn() -> None:
    stop, wake = asyncio.Event(), asyncio.Event()
    others: list[str] = []
    asyncio.get_running_loop().call_soon(others.append, "had its turn")
    wake.set()

    await woken(stop, wake)

    assert others == ["had its turn"]


async def test_nothing_waits_on_when_the_wait_is_cancelled() -> None:
    stop, wake = asyncio.Event(), asyncio.Event()
    waiting = asyncio.ensure_future(woken(stop, wake))
    await asyncio.sleep(0)

    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(0)

    assert asyncio.all_tasks() == {asyncio.current_task()}
