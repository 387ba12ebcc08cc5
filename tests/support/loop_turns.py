"""Whether others have their turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


async def turns_during(call: Callable[[], Coroutine[Any, Any, Any]]) -> int:
    """Return how often others had their turn of the event loop while a call was answered."""
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(take_turns())
    await asyncio.sleep(0)
    before = turns
    await call()
    others.cancel()
    return turns - before
