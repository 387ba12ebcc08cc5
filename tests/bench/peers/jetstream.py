"""NATS JetStream: a stream in files, explicit acknowledgement."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from tests.bench.peers.peer import Clock, PeerMissingError, Work
from tests.bench.peers.servers import free_port, running, wait_for_port

_UNCONFIRMED = 4_000
_FETCH = 500
_FETCH_SECONDS_MAX = 30


class JetStream:
    """One server, one replica."""

    name = "NATS JetStream"
    note = (
        f"nats-py; file storage, which is not synced to disk message by message; {_UNCONFIRMED} unconfirmed,"
        f" pulled by the {_FETCH}"
    )
    messages = 100_000

    @contextlib.contextmanager
    def serving(self, directory: Path) -> Iterator[str]:
        """Run a server with its streams in *directory*."""
        server = shutil.which("nats-server")
        if server is None:
            raise PeerMissingError("Debian's nats-server is not installed")
        port = free_port()
        log = directory / "server.log"
        command = [server, "--jetstream", "--store_dir", str(directory), "--addr", "127.0.0.1", "--port", str(port)]
        with running(command, log, os.environ) as process:
            wait_for_port(process, port, log)
            yield f"nats://127.0.0.1:{port}"

    async def prepare(self, url: str, work: Work) -> None:
        """Add the stream."""
        async with _connected(url) as connection:
            from nats.js.api import StorageType, StreamConfig

            config = StreamConfig(name=work.queue, subjects=[work.queue], storage=StorageType.FILE)
            await connection.jetstream().add_stream(config)

    async def publish(self, url: str, work: Work, clock: Clock) -> None:
        """Publish without waiting for each, and wait for all confirmations at the end."""
        body = bytes(work.body_bytes)
        async with _connected(url) as connection:
            stream = connection.jetstream(publish_async_max_pending=_UNCONFIRMED)
            await clock.begin()
            for _ in range(work.messages):
                await stream.publish_async(work.queue, body)
            await stream.publish_async_completed()

    async def consume(self, url: str, work: Work, clock: Clock) -> None:
        """Pull batches, and acknowledge each message."""
        async with _connected(url) as connection:
            from nats.js.api import AckPolicy, ConsumerConfig

            config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=10_000)
            stream = connection.jetstream()
            subscription = await stream.pull_subscribe(work.queue, durable="consumer", config=config)
            await clock.begin()
            left = work.messages
            while left:
                messages = await subscription.fetch(min(_FETCH, left), timeout=_FETCH_SECONDS_MAX)
                for message in messages:
                    await message.ack()
                left -= len(messages)
            await connection.flush()


@contextlib.asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Any]:
    try:
        import nats
    except ImportError as error:
        raise PeerMissingError("nats-py is not installed") from error
    connection = await nats.connect(url)
    try:
        yield connection
    finally:
        await connection.close()
