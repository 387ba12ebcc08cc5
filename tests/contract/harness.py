"""What the conformance suite needs of a message center, and the two there are: in memory, and a real broker."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any, NamedTuple, Protocol

from confdb.services import Changed, ConfigService
from confdb.store import ConfigStore
from msgbroker.client import (
    Message,
    MessageCenter,
    SyncMessageCenter,
)
from msgbroker.client.testing import InMemoryCenter, SyncInMemoryCenter
from msgdb.dead_letters.reading import get_dead_letter, list_dead_letters
from msgdb.dead_letters.wanted import WantedDeadLetters
from msgdb.log.queues import QueueTailReader
from msgdb.store import MessageStore

WAIT_SECONDS = 20.0
NAMESPACE = "default"


class Letter(NamedTuple):
    """A dead letter, as far as the suite looks at it."""

    body: bytes
    attempts: int
    reason: str
    last_error: str


class Recorder:
    """Keeps the messages that a handler was called with, in whatever thread, and tells who waits for them."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def add(self, message: Message) -> None:
        """Keep a message."""
        self.messages.append(message)
        self._loop.call_soon_threadsafe(self._changed.set)

    @property
    def bodies(self) -> list[bytes]:
        """The bodies, in the order of the calls."""
        return [message.body for message in self.messages]

    async def wait(self, count: int) -> None:
        """Wait until so many calls were made."""
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.messages) < count:
                self._changed.clear()
                await self._changed.wait()


class Harness(Protocol):
    """A message center under test. What is registered is active when the call returns."""

    def center(self) -> MessageCenter:
        """Return a client; the test closes it."""

    async def register_topic(self, name: str, *event_codes: str, **settings: Any) -> None:
        """Register a topic of one queue."""

    async def update_topic(self, name: str, **settings: Any) -> None:
        """Change a topic."""

    async def register_group(self, name: str, **settings: Any) -> None:
        """Register a subscriber group."""

    async def delete_group(self, name: str) -> None:
        """Delete a subscriber group; its streams have ended, or are about to."""

    async def subscribe(
        self, group: str, topic: str, event_code: str = "*", *, expression: str = "", from_beginning: bool = False
    ) -> None:
        """Register a subscription."""

    async def allow_stress(self, group: str, topic: str, event_code: str) -> None:
        """Put a group on the whitelist."""

    async def disallow_stress(self, group: str, topic: str, event_code: str) -> None:
        """Take a group off the whitelist."""

    async def pass_time(self, seconds: float) -> None:
        """Let so much time pass."""

    async def received(self, recorder: Recorder, count: int) -> None:
        """Let deliveries happen, retries too, until the recorder has so many."""

    async def dead_letters(self, group: str, count: int) -> list[Letter]:
        """Return the group's dead letters, oldest first, once there are so many."""


class BlockingHarness(Harness, Protocol):
    """A message center under test that blocking code uses: its calls are made in threads (`asyncio.to_thread`)."""

    def blocking_center(self) -> SyncMessageCenter:
        """Return a client; the test closes it."""


class MemoryHarness:
    """The in-memory center: one for the whole test, as that is all there is of it."""

    def __init__(self, center: InMemoryCenter | None = None) -> None:
        self._center = center or InMemoryCenter(strict=True)
        self._topics: dict[str, dict[str, Any]] = {}

    def center(self) -> MessageCenter:
        """Return the center."""
        return self._center

    async def register_topic(self, name: str, *event_codes: str, **settings: Any) -> None:
        """Register a topic of one queue."""
        self._topics[name] = settings
        self._center.register_topic(name, *event_codes, **settings)

    async def update_topic(self, name: str, **settings: Any) -> None:
        """Change a topic."""
        await self.register_topic(name, **{**self._topics[name], **settings})

    async def register_group(self, name: str, **settings: Any) -> None:
        """Register a subscriber group."""
        self._center.register_group(name, **settings)

    async def delete_group(self, name: str) -> None:
        """Delete a subscriber group."""
        self._center.delete_group(name)

    async def subscribe(
        self, group: str, topic: str, event_code: str = "*", *, expression: str = "", from_beginning: bool = False
    ) -> None:
        """Register a subscription."""
        self._center.register_subscription(
            group, topic, event_code, expression=expression, from_beginning=from_beginning
        )

    async def allow_stress(self, group: str, topic: str, event_code: str) -> None:
        """Put a group on the whitelist."""
        self._center.allow_stress(group, topic, event_code)

    async def disallow_stress(self, group: str, topic: str, event_code: str) -> None:
        """Take a group off the whitelist."""
        self._center.disallow_stress(group, topic, event_code)

    async def pass_time(self, seconds: float) -> None:
        """Move the clock."""
        await self._center.advance(seconds)

    async def received(self, recorder: Recorder, count: int) -> None:
        """Move the clock until all is settled; then the recorder must have so many."""
        await self._settle_all()
        assert len(recorder.messages) >= count

    async def dead_letters(self, group: str, count: int) -> list[Letter]:
        """Return the group's dead letters."""
        await self._settle_all()
        return [
            Letter(letter.message.body, letter.attempts, letter.reason, letter.last_error)
            for letter in self._center.dead_letters
            if letter.group == group
        ]

    async def _settle_all(self) -> None:
        await self._center.settle_all()


class BlockingMemoryHarness(MemoryHarness):
    """The in-memory center for blocking code: all of it lives on the loop of its own thread."""

    def __init__(self) -> None:
        self._blocking = SyncInMemoryCenter(strict=True)
        super().__init__(self._blocking.memory)

    def blocking_center(self) -> SyncMessageCenter:
        """Return the center."""
        return self._blocking

    async def pass_time(self, seconds: float) -> None:
        """Move the clock."""
        await asyncio.to_thread(self._blocking.advance, seconds)

    async def _settle_all(self) -> None:
        await asyncio.to_thread(self._blocking.settle_all)


class BrokerHarness:
    """A real broker on a real database."""

    def __init__(self, address: str, config_store: ConfigStore, store: MessageStore) -> None:
        self._address = address
        self._store = store
        self._service = ConfigService(config_store, "conformance suite", QueueTailReader(store))

    def center(self) -> MessageCenter:
        """Return a client of the broker."""
        return MessageCenter(self._address, drain_timeout_seconds=2)

    def blocking_center(self) -> SyncMessageCenter:
        """Return a client of the broker for blocking code."""
        return SyncMessageCenter(self._address, drain_timeout_seconds=2)

    async def register_topic(self, name: str, *event_codes: str, **settings: Any) -> None:
        """Register a topic of one queue."""
        changed: Changed[Any] = await self._service.topics.create(NAMESPACE, name, queue_count=1, **settings)
        for event_code in event_codes:
            changed = await self._service.event_codes.add(NAMESPACE, name, event_code)
        await self._active(changed)

    async def update_topic(self, name: str, **settings: Any) -> None:
        """Change a topic."""
        await self._active(await self._service.topics.update(NAMESPACE, name, **settings))

    async def register_group(self, name: str, **settings: Any) -> None:
        """Register a subscriber group."""
        # Nothing is delivered to a group before `subscribe`, which waits for both.
        await self._service.subscriber_groups.create(NAMESPACE, name, **settings)

    async def delete_group(self, name: str) -> None:
        """Delete a subscriber group."""
        await self._active(await self._service.subscriber_groups.delete(NAMESPACE, name))

    async def subscribe(
        self, group: str, topic: str, event_code: str = "*", *, expression: str = "", from_beginning: bool = False
    ) -> None:
        """Register a subscription."""
        await self._active(
            await self._service.subscriptions.create(
                NAMESPACE, group, topic, event_code, expression=expression or None, from_beginning=from_beginning
            )
        )

    async def allow_stress(self, group: str, topic: str, event_code: str) -> None:
        """Put a group on the whitelist."""
        await self._active(await self._service.stress.allow(NAMESPACE, group, topic, event_code))

    async def disallow_stress(self, group: str, topic: str, event_code: str) -> None:
        """Take a group off the whitelist."""
        await self._active(await self._service.stress.disallow(NAMESPACE, group, topic, event_code))

    async def pass_time(self, seconds: float) -> None:
        """Wait: the broker has no clock but the real one."""
        await asyncio.sleep(seconds)

    async def received(self, recorder: Recorder, count: int) -> None:
        """Wait until the recorder has so many."""
        await recorder.wait(count)

    async def dead_letters(self, group: str, count: int) -> list[Letter]:
        """Return the group's dead letters once so many are stored."""
        group_id = (await self._service.subscriber_groups.get(NAMESPACE, group)).group_id
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                async with self._store.connection() as connection:
                    found = (await list_dead_letters(connection, WantedDeadLetters(group_id=group_id))).items
                    if len(found) >= count:
                        letters = [await get_dead_letter(connection, each.dead_letter_id) for each in reversed(found)]
                        break
                # Nothing tells of a dead letter but its row.
                await asyncio.sleep(0.05)
        return [
            Letter(one.body, one.summary.attempts, one.summary.reason, one.summary.last_error or "") for one in letters
        ]

    async def _active(self, changed: Changed[Any]) -> None:
        await self._service.wait_until_active(changed.version)


async def open_broker_harness(
    database_url: str, stack: AsyncExitStack, kind: type[BrokerHarness] = BrokerHarness
) -> BrokerHarness:
    """Start a broker on an empty, migrated database; *stack* ends it."""
    from msgbroker.server.app import BrokerSettings, open_broker

    settings = BrokerSettings.load(msgdb_url=database_url, confdb_url=database_url, listen="127.0.0.1:0")
    broker = await stack.enter_async_context(open_broker(settings))
    config_store = await stack.enter_async_context(ConfigStore.open(database_url))
    store = await stack.enter_async_context(MessageStore.open(database_url, pool_size=2))
    return kind(broker.address, config_store, store)


def record(center: MessageCenter, group: str, event_code: str = "*") -> Recorder:
    """Attach a handler that acknowledges everything and return what it was called with."""
    recorder = Recorder()

    @center.subscriber(group=group, topic="TP", event_code=event_code)
    async def handle(message: Message) -> None:
        recorder.add(message)

    return recorder


async def prepare(harness: Harness, *groups: str, **settings: Any) -> None:
    """Register topic TP with two event codes, and groups that are subscribed to all of it."""
    await harness.register_topic("TP", "EC", "EC_OTHER")
    for group in groups:
        await harness.register_group(group, **settings)
        await harness.subscribe(group, "TP")
