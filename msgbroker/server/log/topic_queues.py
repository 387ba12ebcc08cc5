"""Which queues a topic has: what the broker knows of the table `queue`, kept in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from confdb.routes import TopicRoute
from msgbroker.server import clock
from msgdb.log.queues import QueueRow, ensure_queues, list_queues, list_topic_queues
from msgdb.postgres.failures import RowsHeldError
from msgdb.store import MessageStore


@dataclass(frozen=True, slots=True)
class Layout:
    """The queues a topic's messages go to now."""

    generation: int
    queue_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Held:
    """A topic whose older queues somebody holds: they cannot be sealed."""

    again_at: float


# All topics that are held together take a quarter of the time of whoever asks, however many they are.
_LOCK_SECONDS_FIRST: Final = 0.1
_LOCK_SECONDS: Final = 0.5
_AGAIN_SECONDS: Final = 2.0


class TopicQueues:
    """Every queue of the store by its topic."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._layouts: dict[int, Layout] = {}
        self._queues: dict[int, dict[int, QueueRow]] = {}
        self._held: dict[int, _Held] = {}
        self._must_load = False
        self.version = 0
        """Goes up with everything that is learnt: who has worked something out by the queues can tell."""

    async def load(self) -> None:
        """Read all queues: once at the start, and whenever a layout turned out to have changed."""
        async with self._store.connection() as connection:
            rows = await list_queues(connection)
        # What is not there any more is forgotten, and made again.
        self.forget()
        self._learn(rows)
        self._must_load = False

    def forget(self) -> None:
        """Know no queue any more: an id may be another topic's in another history of the store."""
        self._queues.clear()
        self._layouts.clear()
        self._held.clear()
        self._must_load = True
        self.version += 1

    async def ensure(self, route: TopicRoute) -> Layout:
        """Return the topic's layout; make its queues where this is their first use."""
        if self._must_load:
            await self.load()
        layout = self._layouts.get(route.topic_id)
        if layout is not None and layout.generation >= route.generation:
            return layout
        held = self._held.get(route.topic_id)
        if held is not None and clock.now() < held.again_at:
            raise RowsHeldError(f"the queues of topic {route.name} were held a moment ago")
        lock_seconds = _LOCK_SECONDS_FIRST if held is None else _LOCK_SECONDS
        try:
            await self._make(route, lock_seconds)
        except RowsHeldError:
            now = clock.now()
            # Those that nobody has asked for since count no more: their topics may be gone.
            self._held = {topic_id: each for topic_id, each in self._held.items() if each.again_at > now}
            self._held[route.topic_id] = _Held(now + _AGAIN_SECONDS * (len(self._held) + 1))
            raise
        self._held.pop(route.topic_id, None)
        return self._layouts[route.topic_id]

    async def _make(self, route: TopicRoute, lock_seconds: float) -> None:
        async with self._store.connection() as connection:
            generation, count = route.generation, route.queue_count
            await ensure_queues(connection, route.topic_id, generation, count, lock_seconds=lock_seconds)
            # Those of older layouts as well: they are read to their end.
            self._learn(await list_topic_queues(connection, route.topic_id))

    def is_current(self, route: TopicRoute) -> bool:
        """Return whether the topic's layout is known, and not older than *route*."""
        layout = self._layouts.get(route.topic_id)
        return layout is not None and layout.generation >= route.generation

    def queues_of(self, topic_id: int) -> Iterable[int]:
        """Return the ids of all the topic's queues, of sealed layouts too: what a group reads."""
        return self._queues.get(topic_id, {}).keys()

    def _learn(self, rows: Iterable[QueueRow]) -> None:
        self.version += 1
        touched: set[int] = set()
        for row in rows:
            self._queues.setdefault(row.topic_id, {})[row.queue_id] = row
            touched.add(row.topic_id)
        for topic_id in touched:
            queues = self._queues[topic_id].values()
            generation = max(queue.generation for queue in queues)
            current = sorted((q for q in queues if q.generation == generation), key=lambda q: q.ordinal)
            self._layouts[topic_id] = Layout(generation, tuple(q.queue_id for q in current))
