"""The wait between two rounds of a loop."""

from __future__ import annotations

import asyncio


async def pause(stop: asyncio.Event, seconds: float) -> None:
    """Wait until *stop* is set, *seconds* at most."""
    # asyncio.wait, not wait_for: running out of time is the ordinary case, not an error.
    waiting = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((waiting,), timeout=seconds)
    finally:
        waiting.cancel()
