"""How long an event loop was held at a time, by the CPU time of its thread: other programs' load does not count."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class LoopProbe:
    """The longest turn of the loop so far."""

    held_seconds_max: float = 0.0


@asynccontextmanager
async def probed_loop() -> AsyncIterator[LoopProbe]:
    """Watch the running loop for the length of the block."""
    probe = LoopProbe()

    async def watch() -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            probe.held_seconds_max = max(probe.held_seconds_max, time.thread_time() - before)

    watching = asyncio.create_task(watch())
    try:
        yield probe
    finally:
        watching.cancel()
