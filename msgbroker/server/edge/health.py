"""What the broker says of its health: gRPC's standard service, by name.

"" and our services: this broker takes and hands out messages; not while it is cut off from confdb and behind others.
"msgdb": the message store answers; without it publishers hear UNAVAILABLE. "confdb": the configuration answers; without
it the broker goes on by its last snapshot. "alarms": no alarm stands at this broker; `msgcenter alarm list` tells which
do. "archive": no day of the store waits to be archived before it is dropped.
"""

from __future__ import annotations

import asyncio
from typing import Final

from confdb.snapshot import SnapshotFeed
from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.server.alarms.board import AlarmBoard
from msgbroker.server.cluster.cut_off import CutOff
from msgbroker.server.edge.archive_watch import ArchiveWatch
from msgbroker.server.edge.grpc_server import ALARMS, ARCHIVE, CONFDB, MSGDB, SERVICES
from msgbroker.server.edge.health_service import HealthService
from msgbroker.server.loops import PatientCall, pause
from msgdb.store import MessageStore

_CHECK_SECONDS: Final = 1.0
_ANSWER_SECONDS_MAX: Final = 2.0


class HealthWatch:
    """Finds out what this broker's health is, and has the health service say so."""

    def __init__(
        self, *, service: HealthService, store: MessageStore, feed: SnapshotFeed, board: AlarmBoard, cut_off: CutOff
    ) -> None:
        self._service = service
        self._feed = feed
        self._board = board
        self._cut_off = cut_off
        self._archive = ArchiveWatch(store)
        self._ping = PatientCall(store.ping, _ANSWER_SECONDS_MAX)
        self._said: dict[str, bool] = {}
        self._is_leaving = False

    async def run(self, stop: asyncio.Event) -> None:
        """Check until *stop* is set."""
        while not stop.is_set():
            await self.check_once()
            await pause(stop, _CHECK_SECONDS)

    async def check_once(self) -> None:
        """Ask the store for an answer, for a limited time, and say what is so."""
        # First what needs no answer: one database says nothing of the other.
        self._say(CONFDB, serving=self._feed.healthy)
        self._say(ALARMS, serving=not self._board.standing)
        is_answering = await self._store_answers()
        self._say(MSGDB, serving=is_answering)
        if is_answering:
            await self._archive.look_if_due()
        self._say(ARCHIVE, serving=not self._archive.is_day_waiting)
        # Without the store a broker cannot do its work, but restarting it or sending clients elsewhere would not help.
        # Elsewhere the configuration is known that it is behind with.
        for service in ("", *SERVICES):
            self._say(service, serving=not (self._is_leaving or self._cut_off.is_behind))

    async def _store_answers(self) -> bool:
        try:
            await self._ping()
        except (StoreUnavailableError, TimeoutError):
            return False
        return True

    def leave(self) -> None:
        """Say that this broker is about to stop."""
        self._is_leaving = True
        for service in ("", *SERVICES):
            self._say(service, serving=False)

    def _say(self, service: str, *, serving: bool) -> None:
        if self._said.get(service) != serving:
            self._said[service] = serving
            self._service.set(service, serving=serving)
