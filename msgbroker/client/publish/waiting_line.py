"""Who waits for room to publish, in the order of the calls.

Messages wait here themselves, not those who brought them: whoever makes room moves them on in one go, and nothing comes
between. Only `ready` waits with its message still to come. It gets a turn, and nobody behind it is let in until it has
had it: there is room for its message, whatever has come meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from msgbroker.client.publish.publisher import ReceiptFuture


@dataclass(slots=True, eq=False)
class WaitingMessage:
    """A message that waits for room, and who waits for it."""

    encoded: bytes
    answer: ReceiptFuture
    expires_at: float
    passed: asyncio.Future[None] | None = None
    """The future of whoever waits until the message has left the line."""


class WaitingLine:
    """Keeps messages and turns in the order in which they came."""

    def __init__(self) -> None:
        self.places: OrderedDict[asyncio.Future[Any], WaitingMessage | None] = OrderedDict()
        """The line, first come first: a message by its answer, and None for who waits for a turn, by the turn."""

    def add(self, message: WaitingMessage) -> None:
        """Put a message at the end. It leaves when it is let in, or when nobody waits for its answer any more."""
        self.places[message.answer] = message
        message.answer.add_done_callback(self._take_out)

    async def passed(self, answer: ReceiptFuture) -> None:
        """Wait until the message of that answer has left the line."""
        message = self.places.get(answer)
        if message is not None:
            message.passed = answer.get_loop().create_future()
            await message.passed

    async def turn(self) -> None:
        """Wait, at the end, until all before have been let in and there is room."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.places[turn] = None
        try:
            await turn
        finally:
            self.places.pop(turn, None)

    def next_message(self) -> WaitingMessage | None:
        """Take out the first message; None if there is none, or if it is somebody's turn, who gets it."""
        while self.places:
            waiter, message = next(iter(self.places.items()))
            if message is None:
                if not waiter.done():
                    waiter.set_result(None)
                return None
            self._take_out(waiter)
            if not waiter.done():
                return message
        return None

    def expire(self, now: float) -> list[ReceiptFuture]:
        """Take out the messages that have waited too long, and return who waits for their answers."""
        late = [message for message in self.places.values() if message is not None and message.expires_at < now]
        for message in late:
            self._take_out(message.answer)
        return [message.answer for message in late]

    def clear(self) -> tuple[list[ReceiptFuture], list[asyncio.Future[None]]]:
        """Take out all; return who waits for the answers of messages, and who waits for a turn."""
        messages = [message for message in self.places.values() if message is not None]
        turns = [waiter for waiter, message in self.places.items() if message is None]
        for message in messages:
            self._take_out(message.answer)
        self.places.clear()
        return [message.answer for message in messages], turns

    def _take_out(self, answer: ReceiptFuture) -> None:
        message = self.places.pop(answer, None)
        if message is not None and message.passed is not None and not message.passed.done():
            message.passed.set_result(None)
