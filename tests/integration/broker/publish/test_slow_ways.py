"""A way to the store that carries 1 MB/s: storing goes on at that rate. What is too much at once has its time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from typing import Any

import grpc
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from msgbroker.client import MessageCenter, OutgoingMessage, Receipt
from msgbroker.v1 import message_pb2, publisher_pb2, publisher_pb2_grpc
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import PAID, TOPIC, open_config, register_group, register_topic
from tests.support.own_postgres import OwnPostgres


@asynccontextmanager
async def slow_way(url: str, bytes_per_second: float) -> AsyncIterator[str]:
    """Give a URL of the same server that takes so many bytes a second of each connection."""
    target = conninfo_to_dict(url)
    tasks: set[asyncio.Task[None]] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rate: float | None) -> None:
        with suppress(OSError), closing(writer):
            while piece := await reader.read(16_384):
                if rate is not None:
                    await asyncio.sleep(len(piece) / rate)
                writer.write(piece)
                await writer.drain()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(str(target["host"]), int(str(target["port"])))
        for pair in ((reader, server_writer, bytes_per_second), (server_reader, writer, None)):
            task = asyncio.create_task(carry(*pair))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=65_536)
    try:
        yield make_conninfo(url, host="127.0.0.1", port=server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.1)


async def test_a_slow_way_to_the_store_is_used_at_its_rate(
    own_postgres: OwnPostgres, start_broker: StartBroker
) -> None:
    async with open_config(own_postgres.url) as config:
        await register_topic(config)
        await register_group(config)
    async with slow_way(own_postgres.server.tcp_url("center"), 1_000_000) as url:
        broker = await start_broker(msgdb_url=url, confdb_url=own_postgres.url, lease_seconds=8.0)
        async with MessageCenter(broker.address, publish_timeout_seconds=60.0) as center:
            await center.publish(TOPIC, PAID, "before")
            started_at = time.monotonic()
            # 10 MB: ten seconds' worth.
            answers = await center.publish_many([OutgoingMessage(TOPIC, PAID, b"x" * 1_000) for _ in range(10_000)])
            took = time.monotonic() - started_at
        await broker.shut_down()
    assert all(isinstance(answer, Receipt) for answer in answers)
    assert took < 30


async def test_calls_that_make_one_large_batch_have_the_time_that_a_slow_way_takes_for_it(
    own_postgres: OwnPostgres, start_broker: StartBroker
) -> None:
    async with open_config(own_postgres.url) as config:
        await register_topic(config)
    said = message_pb2.Message(topic=TOPIC, event_code=PAID, body=b"x" * 8_000)
    async with slow_way(own_postgres.server.tcp_url("center"), 1_000_000) as url:
        broker = await start_broker(msgdb_url=url, confdb_url=own_postgres.url, lease_seconds=8.0)
        async with grpc.aio.insecure_channel(broker.address) as channel:
            publisher: Any = publisher_pb2_grpc.PublisherStub(channel)
            # While the first ones are stored the others come: up to 3 MB, three seconds' worth, are the next batch.
            calls = [publisher.Publish(publisher_pb2.PublishRequest(messages=[said] * 50)) for _ in range(8)]
            try:
                results = await asyncio.gather(*calls)
            finally:
                await broker.shut_down()
    assert [len(result.queue_ids) for result in results] == [50] * 8


async def test_the_largest_message_is_stored_on_a_way_that_takes_three_seconds_for_it(
    own_postgres: OwnPostgres, start_broker: StartBroker
) -> None:
    # docs/limits: a topic may be given bodies of 4 MiB.
    async with open_config(own_postgres.url) as config:
        await register_topic(config, body_bytes_max=4 * 1024 * 1024)
        await register_group(config)
    async with slow_way(own_postgres.server.tcp_url("center"), 1_400_000) as url:
        broker = await start_broker(msgdb_url=url, confdb_url=own_postgres.url, lease_seconds=8.0)
        async with MessageCenter(broker.address, publish_timeout_seconds=30.0) as center:
            await center.publish(TOPIC, PAID, "before")
            try:
                await center.publish(TOPIC, PAID, b"x" * (4 * 1024 * 1024))
            finally:
                await broker.shut_down()
