"""What tests of a running broker share: registering things, and handlers that remember."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.client import Message, MessageCenter
from msgbroker.server.app import Broker
from msgdb.dead_letters.reading import DeadLetter, get_dead_letter
from msgdb.log.queues import QueueTailReader
from msgdb.store import MessageStore
from tests.support.dead_letter_rows import all_dead_letters
from tests.support.eventually import eventually

TOPIC = "TP_TRADE"
PAID = "EC_PAID"
REFUNDED = "EC_REFUNDED"
GROUP = "SG_POINTS"

Act = Callable[[Message], Awaitable[None]]


async def register_topic(config: ConfigService, topic: str = TOPIC, **settings: Any) -> None:
    """Register a topic with two event codes, and wait until brokers that run take what is published to it."""
    version = (await config.topics.create("default", topic, **settings)).version
    for event_code in (PAID, REFUNDED):
        version = (await config.event_codes.add("default", topic, event_code)).version
    await config.wait_until_active(version)


async def register_group(
    config: ConfigService, group: str = GROUP, *event_codes: str, topic: str = TOPIC, **settings: Any
) -> None:
    """Register a group with DIRECT subscriptions to these event codes, and wait until they are active."""
    version = (await config.subscriber_groups.create("default", group, **settings)).version
    for event_code in event_codes or (PAID,):
        version = (await config.subscriptions.create("default", group, topic, event_code)).version
    await config.wait_until_active(version)


@asynccontextmanager
async def open_config(url: str) -> AsyncIterator[ConfigService]:
    """Open the services that change the configuration of a database of the test's own."""
    async with ConfigStore.open(url) as config_store, MessageStore.open(url, pool_size=2) as store:
        yield ConfigService(config_store, "test", QueueTailReader(store))


class Collected:
    """The messages an instance was given, in their order, and what it does with them."""

    def __init__(self, act: Act | None = None) -> None:
        self.messages: list[Message] = []
        self._act = act

    async def handle(self, message: Message) -> None:
        """Remember the message, then act."""
        self.messages.append(message)
        if self._act is not None:
            await self._act(message)

    @property
    def bodies(self) -> list[str]:
        """The bodies so far."""
        return [message.body.decode() for message in self.messages]

    async def until(self, count: int, seconds: float = 10.0) -> list[str]:
        """Return the bodies once there are *count* of them."""
        await eventually(lambda: len(self.messages) >= count, seconds, what=f"{count} messages")
        return self.bodies


@asynccontextmanager
async def subscribed(
    address: str, group: str = GROUP, *, topic: str = TOPIC, act: Act | None = None, **options: Any
) -> AsyncIterator[Collected]:
    """Run an instance of a group that collects what it is given."""
    collected = Collected(act)
    instance_id = options.pop("instance_id", None)
    async with MessageCenter(address, instance_id=instance_id, drain_timeout_seconds=2.0) as center:
        center.subscriber(group=group, topic=topic, **options)(collected.handle)
        await center.start()
        yield collected


async def all_settled(broker: Broker) -> None:
    """Wait until every lane of the broker has settled all there is: nothing more will come."""

    def is_settled() -> bool:
        lanes = [owned for _, owned in broker.hub.lanes()]
        # While they are given up and claimed again there may be none for a moment.
        return bool(lanes) and all(
            owned.lane.acked_offset == broker.hub.cache.end_of(owned.lane.key.queue_id) for owned in lanes
        )

    await eventually(is_settled, what="everything settled")


async def dead_letters(config: ConfigService, store: MessageStore, group: str = GROUP) -> list[DeadLetter]:
    """Return the dead letters of a group, the newest first."""
    group_id = (await config.subscriber_groups.get("default", group)).group_id
    async with store.connection() as conn:
        return [await get_dead_letter(conn, row.dead_letter_id) for row in await all_dead_letters(conn, group_id)]
