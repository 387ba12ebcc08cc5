"""Event codes of open topics register themselves: what publishers used is written to confdb in the background.

A message of an open topic is accepted at once, whatever its code; the registration is for people and for subscriptions
that name the code. If confdb is away it is made up for later.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from confdb.routes import TopicRoute
from confdb.services import ConfigService
from msgbroker.contract import limits
from msgbroker.contract.errors import ConfigUnavailableError, MessageCenterError
from msgbroker.server.loops import pause, woken

log = structlog.get_logger(__name__)

_RETRY_SECONDS: Final = 2.0
_GATHER_SECONDS: Final = 0.2
_PENDING_MAX: Final = 10_000


class EventCodeRegistrar:
    """Notes event codes that were used and are not registered, and registers them in the background."""

    def __init__(self, service: ConfigService) -> None:
        self._service = service
        self._pending: dict[tuple[str, str], set[str]] = {}
        self._count = 0
        self._wake = asyncio.Event()

    def learn(self, route: TopicRoute, event_code: str) -> None:
        """Note an event code that was used and is not registered."""
        codes = self._pending.setdefault((route.namespace, route.name), set())
        if event_code not in codes and self._count < _PENDING_MAX:
            codes.add(event_code)
            self._count += 1
            self._wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Register what is noted until *stop* is set."""
        while not stop.is_set():
            await woken(stop, self._wake)
            # Publishers bring new codes in bursts: one change of the configuration for all of them.
            await pause(stop, _GATHER_SECONDS)
            self._wake.clear()
            try:
                await self.register_once()
            except ConfigUnavailableError:
                log.warning("event_codes.config_unavailable")
                self._wake.set()
                await pause(stop, _RETRY_SECONDS)

    async def register_once(self) -> None:
        """Register of each topic as much as one may have of what is noted; what is left is for the next round."""
        for (namespace, topic), codes in list(self._pending.items()):
            batch = sorted(codes)[: limits.EVENT_CODES_PER_TOPIC_MAX]
            try:
                without_room = await self._service.event_codes.learn(namespace, topic, batch)
            except ConfigUnavailableError:
                raise
            except MessageCenterError as error:
                # The topic is gone: its messages are stored all the same.
                log.warning("event_codes.not_registered", topic=topic, count=len(batch), problem=error.message)
            else:
                if without_room:
                    log.warning(
                        "event_codes.not_registered", topic=topic, count=len(without_room), problem="it is full"
                    )
            # Publishers may have brought others meanwhile.
            codes.difference_update(batch)
            self._count -= len(batch)
            if not codes:
                del self._pending[namespace, topic]
        if self._pending:
            self._wake.set()
