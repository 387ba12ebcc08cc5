"""Where the queues end that lanes here read: asked of msgdb, which knows what other brokers stored.

What others announce is a hint (`announcements`), and may be lost. So all ends are asked for slowly; and at once, but
not more often than once a second, where another broker says a lower end than is known here: the log may have lost its
end, and be written anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.server.alarms.set_aside import divided
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.loops import pause, woken

log = structlog.get_logger(__name__)

_DOUBT_SECONDS: Final = 1.0


class QueueEnds:
    """Asks msgdb where queues end: the log cache tells whoever reads those that went on."""

    def __init__(self, *, hub: DeliveryHub, poll_seconds: Callable[[], float]) -> None:
        self._wake = asyncio.Event()
        """Set when an end is in doubt."""
        self._hub = hub
        self._poll_seconds = poll_seconds
        self._doubted: set[int] = set()

    def doubt(self, queue_id: int) -> None:
        """Ask soon where this queue ends: what is known here may be wrong."""
        self._doubted.add(queue_id)
        self._wake.set()

    async def run_doubts(self, stop: asyncio.Event) -> None:
        """Ask for the ends that are in doubt, once a second at most, until *stop* is set."""
        while not stop.is_set():
            await woken(stop, self._wake)
            try:
                await self.look_at_doubted_once()
            except StoreUnavailableError:
                log.warning("listener.poll_failed")
            await pause(stop, _DOUBT_SECONDS)

    async def run_poll(self, stop: asyncio.Event) -> None:
        """Ask for all ends, slowly, until *stop* is set."""
        while not stop.is_set():
            await pause(stop, self._poll_seconds())
            try:
                await self.poll_once()
            except StoreUnavailableError:
                log.warning("listener.poll_failed")

    async def look_at_doubted_once(self) -> None:
        """Ask msgdb for the ends that are in doubt. Raises StoreUnavailableError."""
        doubted, self._doubted = self._doubted.intersection(self._hub.queues_read()), set()
        await self._refresh(list(doubted))

    async def poll_once(self) -> None:
        """Ask msgdb where the queues of this broker's lanes end. Raises StoreUnavailableError."""
        await self._refresh(self._hub.queues_read())

    async def _refresh(self, queue_ids: Sequence[int]) -> None:
        # One that cannot be read does not keep the others from being found.
        await divided(
            [q for q in queue_ids if not self._hub.is_end_set_aside(q)], self._look_at_ends, self._hub.end_not_found
        )

    async def _look_at_ends(self, queue_ids: Sequence[int]) -> None:
        await self._hub.cache.refresh_ends(queue_ids)
        self._hub.ends_found(queue_ids)
