"""Connections without a call or stream end after a while; a stream on which nobody says anything is none of them."""

from __future__ import annotations

import asyncio

import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter
from msgbroker.server.edge import grpc_server
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import PAID, TOPIC, register_group, subscribed
from tests.support.eventually import eventually

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
"""Of HTTP/2, with empty settings."""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a third of a second be a while."""
    options = {**dict(grpc_server._OPTIONS), grpc_server.IDLE_CONNECTION_OPTION: 300}
    monkeypatch.setattr(grpc_server, "_OPTIONS", tuple(options.items()))


async def outlive_an_idle_connection(address: str, first: bytes = PREFACE) -> None:
    """Connect, say no more than *first*, and wait until the broker ends it."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(first)
    try:
        async with asyncio.timeout(10):
            await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("first", [PREFACE, b""], ids=["greets", "says-nothing"])
async def test_a_connection_without_a_call_is_ended(start_broker: StartBroker, first: bytes) -> None:
    broker = await start_broker()
    await outlive_an_idle_connection(broker.address, first)


async def test_streams_of_publishers_and_subscribers_last_however_little_they_say(
    trade: ConfigService, start_broker: StartBroker
) -> None:
    broker = await start_broker()
    await register_group(trade)
    async with MessageCenter(broker.address) as center, subscribed(broker.address) as got:
        await center.publish(TOPIC, PAID, "before")
        await got.until(1)
        await eventually(lambda: all(instance.unsettled == 0 for instance in broker.grpc_door.subscriber._instances))
        streams = {*broker.grpc_door.publisher._streams, *broker.grpc_door.subscriber._instances}
        assert len(streams) == 2
        for _ in range(3):
            await outlive_an_idle_connection(broker.address)
        await center.publish(TOPIC, PAID, "afterwards")
        await got.until(2)

        assert {*broker.grpc_door.publisher._streams, *broker.grpc_door.subscriber._instances} == streams
