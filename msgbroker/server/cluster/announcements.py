"""Telling other brokers that queues went on, and hearing it from them.

A NOTIFY is a hint, and may be anybody's: whoever can connect to the database can send one. It is worth a look into
the store and nothing more; the store, and a poll of the queues' ends, are the truth. Announcements go out on a
connection of their own, never inside the append transaction (where a NOTIFY takes a lock over the whole database),
coalesced while one is under way, and only for queues that another broker reads.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Final

import psycopg
import structlog

from confdb.snapshot import SnapshotFeed
from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.server import clock
from msgbroker.server.cluster.heartbeats import Heartbeats
from msgbroker.server.cluster.queue_ends import QueueEnds
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.log.message import LogMessage
from msgbroker.server.loops import pause, woken
from msgdb import requests
from msgdb.store import MessageStore

log = structlog.get_logger(__name__)

CHANNEL: Final = "msgcenter_appended"
_QUEUES_PER_NOTICE_MAX: Final = 200
_RETRY_SECONDS: Final = 1.0
_LISTEN_SECONDS: Final = 1.0
_WARN_SECONDS: Final = 60.0
# Numbers of PostgreSQL's bigint, in its digits.
_NOTICE: Final = re.compile(r"[0-9]{1,18}:[0-9]{1,18}(?:,[0-9]{1,18}:[0-9]{1,18})*\Z")


class WatchedTopics:
    """Which topics' queues other brokers read: worked out again when snapshot or registry changed."""

    def __init__(self, *, heartbeats: Heartbeats, feed: SnapshotFeed) -> None:
        self._heartbeats = heartbeats
        self._feed = feed
        self._known: tuple[object, object] | None = None
        self._topic_ids: frozenset[int] = frozenset()

    def includes(self, message: LogMessage) -> bool:
        """Return whether another broker may read the message's queue."""
        now = (self._feed.current, self._heartbeats.brokers)
        if self._known is None or self._known[0] is not now[0] or self._known[1] is not now[1]:
            self._known = now
            read_at_others = self._heartbeats.groups_at_others()
            self._topic_ids = frozenset(
                subscription.topic_id
                for group in self._feed.current.groups.values()
                if group.group_id in read_at_others
                for subscription in group.subscriptions
            )
        return message.route is not None and message.route.topic_id in self._topic_ids


# It waits for no disk and no standby. For this transaction only: behind a pooler the session is anybody's.
_TELL: Final = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)"


class Announcer:
    """Tells the other brokers that queues went on."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._pending: dict[int, int] = {}
        self._wake = asyncio.Event()
        """Set when there is something to say."""

    def announce(self, ends: Mapping[int, int]) -> None:
        """Say, soon, that these queues reach up to these offsets."""
        self._pending.update(ends)
        self._wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Announce until *stop* is set."""
        while not stop.is_set():
            try:
                async with self._store.dedicated_connection() as connection:
                    while not stop.is_set():
                        await self.announce_once(connection)
                        await woken(stop, self._wake)
            except StoreUnavailableError:
                log.warning("announcer.store_unavailable")
                await pause(stop, _RETRY_SECONDS)

    async def announce_once(self, connection: psycopg.AsyncConnection[tuple[object, ...]]) -> None:
        """Say what there is to say."""
        while self._pending:
            some = [self._pending.popitem() for _ in range(min(len(self._pending), _QUEUES_PER_NOTICE_MAX))]
            payload = ",".join(f"{queue_id}:{end}" for queue_id, end in some)
            await connection.execute(_TELL, (CHANNEL, payload))


def _nothing() -> None:
    """Hear nothing of what is asked."""


class Listener:
    """Hears from other brokers that queues went on, and that operators ask for something."""

    def __init__(
        self, *, store: MessageStore, hub: DeliveryHub, ends: QueueEnds, on_request: Callable[[], object] = _nothing
    ) -> None:
        """Make a listener; *on_request* hears that something may be asked of this broker."""
        self._store = store
        self._hub = hub
        self._ends = ends
        self._on_request = on_request
        self._warn_at = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Listen until *stop* is set."""
        while not stop.is_set():
            try:
                async with self._store.dedicated_connection() as connection:
                    await connection.execute(f"LISTEN {CHANNEL}")
                    await connection.execute(f"LISTEN {requests.CHANNEL}")
                    while not stop.is_set():
                        await self.listen_once(connection)
            except StoreUnavailableError:
                log.warning("listener.store_unavailable")
                await pause(stop, _RETRY_SECONDS)

    async def listen_once(self, connection: psycopg.AsyncConnection[tuple[object, ...]]) -> None:
        """Hear what is said within a moment."""
        async for notice in connection.notifies(timeout=_LISTEN_SECONDS):
            if notice.channel == requests.CHANNEL:
                self._on_request()
            else:
                self.hear(notice.payload)

    def hear(self, payload: str) -> None:
        """Take note of what somebody said: another broker, if it is in the form in which brokers say it."""
        if not _NOTICE.match(payload):
            if clock.now() >= self._warn_at:
                self._warn_at = clock.now() + _WARN_SECONDS
                log.warning("listener.notice_not_understood", payload=payload[:80])
            return
        for part in payload.split(","):
            queue_id, _, end = part.partition(":")
            if self._hub.reads(int(queue_id)):
                self._look(int(queue_id), int(end))

    def _look(self, queue_id: int, end: int) -> None:
        if self._hub.cache.hint_end(queue_id, end):
            self._hub.queue_went_on(queue_id)
        elif end < self._hub.cache.end_of(queue_id):
            # Said before what is known, and heard after it; or the log lost its end, and is written anew.
            self._ends.doubt(queue_id)
