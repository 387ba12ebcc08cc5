"""What a MessageCenter needs of whoever takes its messages: the stream to a broker, or the in-memory store of tests."""

from __future__ import annotations

import asyncio
from typing import Protocol

from msgbroker.client.message import Receipt
from msgbroker.contract.errors import MessageCenterError


class PublishingBuffer(Protocol):
    """Takes encoded messages."""

    @property
    def is_full(self) -> bool:
        """Whether a publish has to wait for room."""

    def offer(self, encoded: bytes, within_seconds: float | None = None) -> asyncio.Future[Receipt]:
        """Take one message and return the future of its receipt; raise ClientBufferFullError if there is no room.

        *within_seconds*: how long it may take, where that is not what publishing may take.
        """

    def offer_one_way(self, encoded: bytes) -> bool:
        """Take one message that nobody waits for; return False if there is no room."""

    async def room(self) -> None:
        """Wait until there is room, in the order of the callers. Whoever it returns to offers at once."""

    async def flush(self) -> None:
        """Wait until everything was answered, or given up."""


class Publisher(Protocol):
    """A buffer, and what empties it."""

    @property
    def buffer(self) -> PublishingBuffer:
        """Where messages go in."""

    async def close(self, reason: MessageCenterError) -> None:
        """Stop; whatever is unanswered fails with *reason*."""
