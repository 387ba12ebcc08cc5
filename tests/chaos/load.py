"""Publishers and subscribers under whom things are killed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.client import Message, MessageCenter, OutgoingMessage
from msgdb.log.queues import QueueTailReader
from msgdb.store import MessageStore
from tests.chaos.history import History
from tests.support.eventually import eventually

TOPIC = "TP_CHAOS"
EVENT_CODE = "EC_TICK"

_serials = itertools.count()


async def register(url: str, *groups: str, queue_count: int = 4) -> None:
    """Register a topic, and groups that are subscribed to all of it."""
    async with ConfigStore.open(url) as config_store, MessageStore.open(url, pool_size=2) as store:
        config = ConfigService(config_store, "chaos", QueueTailReader(store))
        await config.topics.create("default", TOPIC, queue_count=queue_count)
        await config.event_codes.add("default", TOPIC, EVENT_CODE)
        for group in groups:
            await config.subscriber_groups.create("default", group)
            made = await config.subscriptions.create("default", group, TOPIC, "*")
            await config.wait_until_active(made.version)


class Load:
    """Publishes and subscribes, and writes the history of it."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = list(addresses)
        self.history = History()
        self.groups: list[str] = []
        self._stop = asyncio.Event()
        self._stack = AsyncExitStack()
        self._publishing: list[asyncio.Task[None]] = []

    @classmethod
    @asynccontextmanager
    async def running(
        cls,
        addresses: Sequence[str],
        groups: Sequence[str],
        *,
        publishers: int = 4,
        instances: int = 2,
        **publisher_settings: Any,
    ) -> AsyncIterator[Load]:
        """Run a load for the length of the block."""
        load = cls(addresses)
        async with load._stack:
            for group in groups:
                for number in range(instances):
                    await load.subscribe(group, number)
            for number in range(publishers):
                await load.publish(number, **publisher_settings)
            try:
                yield load
            finally:
                await load.stop_publishing()

    async def subscribe(self, group: str, number: int) -> None:
        """Add an instance of a group, at a broker of its own as far as they go."""
        if group not in self.groups:
            self.groups.append(group)
        center = await self._center(number)

        async def handle(message: Message) -> None:
            self.history.saw(group, message)

        center.subscriber(group=group, topic=TOPIC)(handle)
        await center.start()

    async def publish(self, number: int, **settings: Any) -> None:
        """Add a publisher."""
        center = await self._center(number, publish_timeout_seconds=60.0, **settings)
        self._publishing.append(asyncio.create_task(self._publish(center, f"p{next(_serials)}", keyed=number % 2 == 0)))

    async def more(self, count: int, seconds: float = 60.0) -> None:
        """Wait until so many further messages are acknowledged."""
        wanted = len(self.history.acknowledged) + count
        await eventually(
            lambda: self._alive() and len(self.history.acknowledged) >= wanted, seconds, what=f"{count} more published"
        )

    async def stop_publishing(self) -> None:
        """Let publishers finish what they have sent."""
        self._stop.set()
        await asyncio.gather(*self._publishing)

    async def finish(self, seconds: float = 60.0) -> History:
        """Stop publishing, wait until every group has seen all that was acknowledged, and return the history."""
        await self.stop_publishing()
        try:
            await eventually(lambda: not self.history.missing(self.groups), seconds)
        except AssertionError as error:
            missing = self.history.missing(self.groups)
            raise AssertionError(f"not seen by its group within {seconds:g} s: {missing}") from error
        return self.history

    async def _center(self, number: int, **settings: Any) -> MessageCenter:
        first = number % len(self.addresses)
        addresses = self.addresses[first:] + self.addresses[:first]
        return await self._stack.enter_async_context(MessageCenter(addresses, drain_timeout_seconds=3.0, **settings))

    async def _publish(self, center: MessageCenter, publisher: str, *, keyed: bool) -> None:
        numbers = itertools.count()
        while not self._stop.is_set():
            bodies = [f"{publisher}:{next(numbers)}" for _ in range(20)]
            key = publisher if keyed else ""
            answers = await center.publish_many([OutgoingMessage(TOPIC, EVENT_CODE, body, key=key) for body in bodies])
            for body, answer in zip(bodies, answers, strict=True):
                self.history.told(body, answer)

    def _alive(self) -> bool:
        for task in self._publishing:
            if task.done():
                task.result()
        return True
