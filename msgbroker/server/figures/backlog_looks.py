"""Has the store look how far groups are behind: every ten seconds, by whichever broker comes first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final
from uuid import UUID

import structlog

from confdb.routes import GroupRoute, Snapshot
from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.engine.matching_share import asked_of
from msgbroker.server import clock
from msgbroker.server.loops import pause
from msgdb.figures.backlog import Reading, look, readings_parameters
from msgdb.store import MessageStore

log = structlog.get_logger(__name__)

_LOOK_SECONDS: Final = 10.0
_LOOK_SECONDS_MAX: Final = 60.0
_APART: Final = 0.9
"""Brokers do not keep step: one whose turn comes a little early looks all the same."""
_SHARE: Final = 0.02
"""A look is one core's work. Where there are so many lanes that it takes long, it is done less often."""


class BacklogLooks:
    """Looks at the backlog, and leaves it to others where these were first."""

    def __init__(
        self,
        store: MessageStore,
        broker_id: UUID,
        snapshot: Callable[[], Snapshot],
        now: Callable[[], float] = clock.now,
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._snapshot = snapshot
        self._now = now
        self._readings: tuple[Snapshot, dict[str, str]] | None = None
        self._seconds = _LOOK_SECONDS

    async def run(self, stop: asyncio.Event) -> None:
        """Look every ten seconds until *stop* is set."""
        while not stop.is_set():
            try:
                await self.look_once()
            except StoreUnavailableError:
                # Nobody can tell how far groups were behind then, and that minute has no row. It may have taken longer
                # than a statement may.
                self._seconds = _LOOK_SECONDS_MAX
                log.warning("backlog.store_unavailable")
            await pause(stop, self._seconds)

    async def look_once(self) -> bool:
        """Look, unless another broker has a moment ago; return whether it was done. Raises StoreUnavailableError."""
        readings = self._known_readings()
        async with self._store.connection() as connection:
            begun_at = self._now()
            is_done = await look(connection, self._broker_id, readings, apart_seconds=self._seconds * _APART)
        if is_done:
            taken_seconds = self._now() - begun_at
            self._seconds = min(max(_LOOK_SECONDS, taken_seconds / _SHARE), _LOOK_SECONDS_MAX)
        return is_done

    def _known_readings(self) -> dict[str, str]:
        snapshot = self._snapshot()
        if self._readings is None or self._readings[0] is not snapshot:
            readings = [reading for group in snapshot.groups.values() for reading in readings_of(group)]
            self._readings = (snapshot, readings_parameters(readings))
        return self._readings[1]


def readings_of(group: GroupRoute) -> list[Reading]:
    """Return which topics a group reads, and from where on: from where its first subscription to each begins."""
    starts: dict[int, list[dict[int, int]]] = {}
    for subscription in group.subscriptions:
        starts.setdefault(subscription.topic_id, []).append(dict(subscription.start_offsets))
    return [
        Reading(
            group.group_id,
            topic_id,
            # A queue that one of them does not name is younger than it: all of it is that one's.
            {queue_id: min(each.get(queue_id, 0) for each in of_topic) for queue_id in of_topic[0]},
            asked_of(group.subscriptions, topic_id),
        )
        for topic_id, of_topic in starts.items()
    ]
