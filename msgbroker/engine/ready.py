"""A lane's messages that wait for their first hand-out, in the order of the queue, and what they have in bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic

from msgbroker.engine.messages import MessageT


class ReadyMessages(Generic[MessageT]):
    """See the module. Asked for its bytes after every hand-out: it counts as it goes."""

    __slots__ = ("_messages", "size_bytes")

    def __init__(self) -> None:
        self._messages: deque[MessageT] = deque()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def first(self) -> MessageT:
        """The next message; there must be one."""
        return self._messages[0]

    def add(self, messages: Sequence[MessageT]) -> None:
        """Add what comes behind all that is here."""
        self._messages.extend(messages)
        self.size_bytes += sum([message.size_bytes for message in messages])

    def take(self, count_max: int, bytes_max: int) -> list[MessageT]:
        """Remove and return the first ones: so many at most, and so many bytes, but at least one if there is any."""
        messages = self._messages
        if count_max >= len(messages):
            batch = list(messages)
            messages.clear()
        else:
            batch = [messages.popleft() for _ in range(count_max)]
        sizes = [message.size_bytes for message in batch]
        taken_bytes = sum(sizes)
        while taken_bytes > bytes_max and len(batch) > 1:
            taken_bytes -= sizes[len(batch) - 1]
            messages.appendleft(batch.pop())
        self.size_bytes -= taken_bytes
        return batch

    def clear(self) -> None:
        """Let go of all."""
        self._messages.clear()
        self.size_bytes = 0
