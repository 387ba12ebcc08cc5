"""A lane's messages that wait for their first hand-out, in the order of the queue, and what they cost in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic

from msgbroker.engine.messages import MessageT


class ReadyMessages(Generic[MessageT]):
    """The messages, with a running sum of their bytes: the driver asks for it after every hand-out."""

    __slots__ = ("_messages", "held_bytes")

    def __init__(self) -> None:
        self._messages: deque[MessageT] = deque()
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[MessageT]:
        return iter(self._messages)

    @property
    def first(self) -> MessageT:
        """The next message; there must be one."""
        return self._messages[0]

    def add(self, messages: Sequence[MessageT]) -> None:
        """Add what comes behind all that is here."""
        self._messages.extend(messages)
        self.held_bytes += sum([message.held_bytes for message in messages])

    def take(self, count_max: int, bytes_max: int) -> list[MessageT]:
        """Remove and return the first ones: so many at most, and so many bytes, but at least one if there is any."""
        messages = self._messages
        if count_max >= len(messages):
            batch, held_bytes = list(messages), self.held_bytes
            messages.clear()
        else:
            batch = [messages.popleft() for _ in range(count_max)]
            held_bytes = sum([message.held_bytes for message in batch])
        self.held_bytes -= held_bytes
        # What costs no more in memory is no more on its way either: mostly that settles it.
        if held_bytes > bytes_max:
            self._put_back(batch, bytes_max)
        return batch

    def _put_back(self, batch: list[MessageT], bytes_max: int) -> None:
        """Take the last ones back from *batch* that are over *bytes_max*, but not the first."""
        taken_bytes = sum([message.size_bytes for message in batch])
        while taken_bytes > bytes_max and len(batch) > 1:
            message = batch.pop()
            taken_bytes -= message.size_bytes
            self.held_bytes += message.held_bytes
            self._messages.appendleft(message)

    def take_all(self) -> list[MessageT]:
        """Remove and return all messages."""
        messages = list(self._messages)
        self.clear()
        return messages

    def clear(self) -> None:
        """Let go of all messages."""
        self._messages.clear()
        self.held_bytes = 0
