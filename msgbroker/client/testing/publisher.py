"""The publisher of a center in memory: what is offered is stored in the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Self

from msgbroker.client.values.message import Receipt
from msgbroker.contract.errors import MessageCenterError


class MemoryPublisher:
    """Buffer and stream in one, as nothing is ever unanswered."""

    def __init__(self, store: Callable[[bytes], Receipt]) -> None:
        self._store = store

    trouble: Final = None

    @property
    def buffer(self) -> Self:
        """Where messages go in."""
        return self

    @property
    def unanswered_count(self) -> int:
        """How many messages wait for their answer: none."""
        return 0

    def offer(self, encoded: bytes) -> asyncio.Future[Receipt]:
        """Store a message: that takes no time."""
        return self.offer_in_turn(encoded)

    def offer_in_turn(self, encoded: bytes, within_seconds: float | None = None) -> asyncio.Future[Receipt]:  # noqa: ARG002
        """Store a message: that takes no time."""
        answer: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        try:
            answer.set_result(self._store(encoded))
        except MessageCenterError as error:
            answer.set_exception(error)
        return answer

    def offer_one_way(self, encoded: bytes) -> bool:
        """Store a message; whether it is refused stays unsaid."""
        answer = self.offer(encoded)
        # Looked at, so that asyncio does not report it as forgotten.
        answer.exception()
        return True

    async def taken(self, answer: asyncio.Future[Receipt]) -> None:
        """Return at once: there is always room."""

    def is_sent(self, answer: asyncio.Future[Receipt]) -> bool:
        """Return whether it is stored: it was at once."""
        return answer.done()

    async def room(self) -> None:
        """Return at once: there is always room."""

    async def flush(self) -> None:
        """Return at once: all that was published is stored."""

    async def close(self, reason: MessageCenterError) -> None:
        """Return at once: there is nothing to close."""
