"""A center whose publisher stores a frame when it is told to, and does nothing else: no broker, no time, no chance."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from msgbroker.client import MessageCenter, MessageCenterError
from msgbroker.client.core.center_core import CenterCore
from msgbroker.client.publish.buffer import PublishBuffer
from msgbroker.client.publish.frames import Frame
from msgbroker.client.publish.publisher import Publisher, ReceiptFuture
from msgbroker.client.publish.wire import message_of
from msgbroker.client.values.config import AddressesGiven, CenterSettings, ClientConfig, make_config
from msgbroker.v1 import publisher_pb2


class HandOperated:
    """A publisher that stores a frame when it is told to."""

    def __init__(self, config: ClientConfig) -> None:
        self.buffer = PublishBuffer(config)
        self.stored: list[int] = []
        """The bodies, as numbers."""
        self._sent: deque[Frame[ReceiptFuture]] = deque()

    def send(self) -> None:
        """Send a frame, if there is one."""
        frame = self.buffer.outbox.next_frame()
        if frame is not None:
            self._sent.append(frame)

    def answer(self) -> None:
        """Store and answer the frame that was sent first."""
        if self._sent:
            frame = self._sent.popleft()
            self.stored += [int(message_of(message).body) for message in frame.messages]
            self.buffer.outbox.stored(frame.sequence)
            self.buffer.resolve(frame, publisher_pb2.PublishResult(sequence=frame.sequence))
        self.buffer.after_removal()

    def store(self) -> None:
        """Send, store and answer a frame."""
        self.send()
        self.answer()

    async def close(self, reason: MessageCenterError) -> None:
        """Give up what is left."""
        self.buffer.close(reason)


class PausedCenter(MessageCenter):
    """A center whose publisher goes on only when a test says so."""

    publisher: HandOperated

    def _make_core(self, addresses: AddressesGiven, settings: CenterSettings) -> CenterCore:
        return _PausedCore(self, make_config(addresses, settings))


class _PausedCore(CenterCore):
    def __init__(self, center: PausedCenter, config: ClientConfig) -> None:
        super().__init__(config, is_instance_named=True)
        self._center = center

    def _open_publisher(self) -> Publisher:
        self._center.publisher = HandOperated(self.config)
        return self._center.publisher


async def several_turns() -> None:
    """Let everybody go on who can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def begun(doing: Any) -> asyncio.Task[Any]:
    """Begin, and go on once it waits."""
    task: asyncio.Task[Any] = asyncio.ensure_future(doing)
    await several_turns()
    return task
