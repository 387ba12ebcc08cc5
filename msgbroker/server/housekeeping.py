"""What is kept for whoever may come back, and tidied up where nobody does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from msgbroker.server.loops import pause

_TIDY_SECONDS: Final = 5.0


class Housekeeping:
    """Lets each part forget, every few seconds, what is not needed any more."""

    def __init__(self, tidy: Sequence[Callable[[], None]]) -> None:
        self._tidy = tidy

    async def run(self, stop: asyncio.Event) -> None:
        """Tidy up until *stop* is set."""
        while not stop.is_set():
            self.tidy_once()
            await pause(stop, _TIDY_SECONDS)

    def tidy_once(self) -> None:
        """Tidy up everywhere."""
        for tidy in self._tidy:
            tidy()
