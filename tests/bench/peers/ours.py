"""The message center, with everything on: validation, matching, idempotence, cursors, all indexes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

from msgbroker.client import Message, MessageCenter
from msgbroker.contract.errors import ClientBufferFullError
from msgconsole.bench.phases.center import BenchCenter
from tests.bench.peers.peer import Clock, Work

_EVENT_CODE = "EC_PEER"


class Ours:
    """Publishes as `MessageCenter.publish_soon` does, and subscribes with a handler."""

    name = "message center"
    note = "PostgreSQL with fsync on; the client batches by itself"
    messages = 200_000

    @contextlib.contextmanager
    def serving(self, directory: Path) -> Iterator[str]:
        """Run PostgreSQL and a broker."""
        with BenchCenter(directory, lambda _: None, {"client_registration": "true"}) as center:
            yield center.address

    async def prepare(self, url: str, work: Work) -> None:
        """Register the topic, the group and the subscription."""
        async with MessageCenter(url) as center:
            await center.register(f"TP_{work.queue}", _EVENT_CODE, group=f"SG_{work.queue}")

    async def publish(self, url: str, work: Work, clock: Clock) -> None:
        """Publish, half of the messages with a key."""
        body, topic = bytes(work.body_bytes), f"TP_{work.queue}"
        async with MessageCenter(url) as center:
            # Connects. It is one of the messages.
            await center.publish(topic, _EVENT_CODE, body)
            await clock.begin()
            for number in range(1, work.messages):
                key = f"order-{number % 4_096}" if number & 1 else ""
                try:
                    center.publish_soon(topic, _EVENT_CODE, body, key=key)
                except ClientBufferFullError:
                    await center.ready()
                    center.publish_soon(topic, _EVENT_CODE, body, key=key)
            await center.flush()

    async def consume(self, url: str, work: Work, clock: Clock) -> None:
        """Handle the messages; returning from the handler acknowledges."""
        done = asyncio.Event()
        left = work.messages
        async with MessageCenter(url) as center:

            @center.subscriber(group=f"SG_{work.queue}", topic=f"TP_{work.queue}", event_code=_EVENT_CODE)
            async def handle(_message: Message) -> None:
                nonlocal left
                left -= 1
                if not left:
                    done.set()

            await center.start()
            await clock.begin()
            await done.wait()
