"""Giving way: a publisher's stream leaves the event loop to delivery while a group that could take more is behind.

Publishing and delivery share one loop, and whoever publishes without a pause would win: groups fall behind, out of
memory, and are read back from msgdb, which costs more than all the rest. So a stream then pauses for as long as it had
gone on, and publishing goes on at half its speed at least. Only those pause whose messages the group is behind with: a
group that reads a backlog slows down its own topics' publishers and no others. One whose instances take no more slows
nobody down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Final

_PAUSE_SECONDS_MAX: Final = 0.03


class GivingWay:
    """How one stream gives way: when it went on last, and whether its topics' delivery is behind."""

    def __init__(self, is_behind: Callable[[Collection[int]], bool]) -> None:
        self._is_behind = is_behind
        self._went_on_at = time.monotonic()

    async def pause(self, topic_ids: Collection[int]) -> None:
        """Pause for as long as the stream had gone on, if it is the turn of these topics' delivery."""
        seconds = min(time.monotonic() - self._went_on_at, _PAUSE_SECONDS_MAX)
        if self._is_behind(topic_ids):
            await asyncio.sleep(seconds)
        self._went_on_at = time.monotonic()
