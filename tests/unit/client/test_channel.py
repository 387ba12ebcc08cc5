"""Connecting to a broker: cancelled at any moment, and past whatever proxy there is."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from msgbroker.client.channel import connect
from msgbroker.client.config import ClientConfig


class ReadyAsItIsCancelled:
    """A channel that gets ready; whoever waits for it is cancelled in the very next moment."""

    def __init__(self) -> None:
        self.waits: asyncio.Task[object] | None = None

    async def channel_ready(self) -> None:
        await asyncio.sleep(0)
        assert self.waits is not None
        asyncio.get_running_loop().call_soon(self.waits.cancel)

    async def close(self) -> None:
        """Do nothing."""


async def test_a_cancellation_that_comes_as_the_channel_gets_ready_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    channel = ReadyAsItIsCancelled()
    monkeypatch.setattr(grpc.aio, "insecure_channel", lambda *_, **__: channel)

    async def connect_and_serve() -> None:
        await connect("127.0.0.1:1", ClientConfig(("127.0.0.1:1",)))
        await asyncio.Event().wait()

    channel.waits = asyncio.create_task(connect_and_serve())
    await asyncio.wait([channel.waits], timeout=5)

    assert channel.waits.cancelled()
