"""The pieces every loop of the broker shares."""

from __future__ import annotations

import asyncio

from msgdb.pausing import pause

__all__ = ["pause", "pause_or_wake"]


async def pause_or_wake(wake: asyncio.Event, seconds: float) -> None:
    """Return after *seconds*, or as soon as *wake* is set, and clear it."""
    await pause(wake, seconds)
    wake.clear()
