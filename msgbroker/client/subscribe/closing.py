"""That a stream is to close, and until when what runs may take."""

from __future__ import annotations

import asyncio
import math


class Closing:
    """Tells all parts of one stream that it is to close, and until when."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()
        self._until = math.inf

    def begin(self, until: float) -> None:
        """Close; handlers have until then, by the loop's clock."""
        self._until = until
        self._begun.set()

    @property
    def has_begun(self) -> bool:
        """Whether the stream is to close."""
        return self._begun.is_set()

    @property
    def seconds_left(self) -> float:
        """How many seconds the handlers that run may still take."""
        return max(0.0, self._until - asyncio.get_running_loop().time())

    async def wait(self) -> None:
        """Wait until the stream is told to close."""
        await self._begun.wait()
