"""Every few seconds each part of the broker forgets what nobody needs any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from msgbroker.server.loops import pause

_ROUND_SECONDS: Final = 5.0


class Forgetting:
    """Lets each part forget what it keeps for whoever may come back: instances that pull, topics that failed."""

    def __init__(self, parts: Sequence[Callable[[], None]]) -> None:
        self._parts = parts

    async def run(self, stop: asyncio.Event) -> None:
        """Let all parts forget, round by round, until *stop* is set."""
        while not stop.is_set():
            self.forget_once()
            await pause(stop, _ROUND_SECONDS)

    def forget_once(self) -> None:
        """Let each part forget what it need not keep any more."""
        for forget in self._parts:
            forget()
