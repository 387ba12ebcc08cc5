"""A pause ends early when the loop is to stop."""

from __future__ import annotations

import asyncio

from msgdb.postgres.pausing import pause


async def test_a_pause_ends_at_once_when_the_loop_is_stopped() -> None:
    stop = asyncio.Event()
    waiting = asyncio.create_task(pause(stop, 3_600))
    stop.set()

    await asyncio.wait_for(waiting, 5)


async def test_a_pause_ends_by_itself() -> None:
    await asyncio.wait_for(pause(asyncio.Event(), 0.001), 5)
