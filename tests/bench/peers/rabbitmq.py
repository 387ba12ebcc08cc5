"""RabbitMQ: a durable quorum queue, publisher confirms, manual acknowledgement."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.peers.peer import Clock, PeerMissingError, Work
from tests.bench.peers.servers import free_port, running, wait_for_port

# Not the one on the PATH: that changes to another user and to the system's directories.
_SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_UNCONFIRMED = 512
_PREFETCH = 1_000
_ACK_EVERY = 100


class RabbitMQ:
    """One node, as the others have one."""

    name = "RabbitMQ quorum queue"
    note = f"aio-pika; {_UNCONFIRMED} unconfirmed, prefetch {_PREFETCH}, acknowledged by the {_ACK_EVERY}"
    messages = 30_000

    @contextlib.contextmanager
    def serving(self, directory: Path) -> Iterator[str]:
        """Run a node, and the port mapper it needs, with everything in *directory*."""
        if not _SERVER.exists():
            raise PeerMissingError("Debian's rabbitmq-server is not installed")
        port, mapper_port = free_port(), free_port()
        environment = {**os.environ, **_environment(directory, port, mapper_port)}
        (directory / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n")
        (directory / "enabled_plugins").write_text("[].\n")
        log, mapper_log = directory / "server.log", directory / "epmd.log"
        mapper = ["epmd", "-address", "127.0.0.1", "-port", str(mapper_port)]
        with (
            running(mapper, mapper_log, environment) as mapping,
            running([str(_SERVER)], log, environment) as process,
        ):
            wait_for_port(mapping, mapper_port, mapper_log)
            wait_for_port(process, port, log)
            yield f"amqp://guest:guest@127.0.0.1:{port}/"

    async def prepare(self, url: str, work: Work) -> None:
        """Declare the queue."""
        async with _channel(url) as channel:
            await _declare(channel, work.queue)

    async def publish(self, url: str, work: Work, clock: Clock) -> None:
        """Publish persistent messages, each awaited until it is confirmed, many at once."""
        from aio_pika import DeliveryMode, Message

        body = bytes(work.body_bytes)
        numbers = iter(range(work.messages))
        async with _channel(url) as channel:
            await clock.begin()

            async def publisher() -> None:
                for _ in numbers:
                    message = Message(body, delivery_mode=DeliveryMode.PERSISTENT)
                    await channel.default_exchange.publish(message, routing_key=work.queue)

            await asyncio.gather(*(publisher() for _ in range(_UNCONFIRMED)))

    async def consume(self, url: str, work: Work, clock: Clock) -> None:
        """Take messages as they are pushed."""
        done = asyncio.Event()
        taken = 0

        async def handle(message: Any) -> None:
            nonlocal taken
            taken += 1
            if taken % _ACK_EVERY == 0 or taken == work.messages:
                await message.ack(multiple=True)
            if taken == work.messages:
                done.set()

        async with _channel(url) as channel:
            await channel.set_qos(prefetch_count=_PREFETCH)
            queue = await _declare(channel, work.queue)
            await queue.consume(handle)
            await clock.begin()
            await done.wait()


@contextlib.asynccontextmanager
async def _channel(url: str) -> Any:
    try:
        import aio_pika
    except ImportError as error:
        raise PeerMissingError("aio-pika is not installed") from error
    async with await aio_pika.connect(url) as connection:
        yield await connection.channel(publisher_confirms=True)


async def _declare(channel: Any, queue: str) -> Any:
    return await channel.declare_queue(queue, durable=True, arguments={"x-queue-type": "quorum"})


def _environment(directory: Path, port: int, mapper_port: int) -> dict[str, str]:
    return {
        # Its cookie goes there.
        "HOME": str(directory),
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
        "RABBITMQ_CONF_ENV_FILE": os.devnull,
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(mapper_port),
    }
