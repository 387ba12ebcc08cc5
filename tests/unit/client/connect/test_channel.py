"""Connecting to a broker: cancelled at any moment, and past whatever proxy there is."""

from __future__ import annotations

import asyncio
import os

import grpc
import pytest

from msgbroker.client.connect.channel import connect
from msgbroker.client.values.config import ClientConfig
from tests.support.fake_broker import FakeBroker


class ReadyAsItIsCancelled:
    """A channel that gets ready; whoever waits for it is cancelled in the very next moment."""

    def __init__(self) -> None:
        self.waits: asyncio.Task[object] | None = None

        self.state = grpc.ChannelConnectivity.CONNECTING

    def get_state(self, *, try_to_connect: bool) -> grpc.ChannelConnectivity:
        return self.state

    async def wait_for_state_change(self, state: grpc.ChannelConnectivity) -> None:
        await asyncio.sleep(0)
        self.state = grpc.ChannelConnectivity.READY
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


NO_PROXY = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    "variable, host",
    [
        ("http_proxy", "127.0.0.1"),
        # Of this machine as well, but gRPC does not know.
        ("http_proxy", "0.0.0.0"),  # noqa: S104
        ("https_proxy", "0.0.0.0"),  # noqa: S104
        ("grpc_proxy", "127.0.0.1"),
        ("grpc_proxy", "localhost"),
    ],
)
async def test_no_proxy_is_asked_for_a_broker_that_is_not_named_for_it(
    broker: FakeBroker, variable: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, NO_PROXY)
    address = broker.address.replace("127.0.0.1", host)

    channel = await connect(address, ClientConfig((address,)))

    await channel.close()


async def test_a_proxy_that_is_named_for_grpc_leads_to_brokers_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        if not asked.done():
            asked.set_result(line)
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as proxy:
        monkeypatch.setenv("grpc_proxy", f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
        connecting = asyncio.ensure_future(connect("broker.example:7400", ClientConfig(("broker.example:7400",))))
        async with asyncio.timeout(20):
            line = await asked
        connecting.cancel()
        await asyncio.wait([connecting])

    assert line.startswith(b"CONNECT broker.example:7400 ")
