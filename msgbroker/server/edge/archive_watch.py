"""Whether a day of the store is kept beyond its time because it is not archived: for health, and said in the log.

Whichever broker does maintenance raises the alarm, in the name of the store. Here every broker hears of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.server import clock
from msgbroker.server.loops import PatientCall
from msgdb.reports.alarms import AlarmKind, AlarmRow, list_alarms
from msgdb.store import MessageStore

log = structlog.get_logger(__name__)

_LOOK_SECONDS: Final = 20.0
_ANSWER_SECONDS_MAX: Final = 2.0


class ArchiveWatch:
    """Knows whether a day waits, as of the last time that the store told."""

    def __init__(self, store: MessageStore, now: Callable[[], float] = clock.now) -> None:
        self._store = store
        self._now = now
        self._look_at = now()
        self._find = PatientCall(self._find_oldest, _ANSWER_SECONDS_MAX)
        self._oldest: tuple[str, str] | None = None

    @property
    def is_day_waiting(self) -> bool:
        """Whether a day is due to be dropped and is kept."""
        return self._oldest is not None

    async def look_if_due(self) -> None:
        """Ask the store, now and then; while it does not answer what was known holds."""
        if self._now() < self._look_at:
            return
        self._look_at = self._now() + _LOOK_SECONDS
        try:
            alarm = await self._find()
        except (StoreUnavailableError, TimeoutError):
            return
        oldest = None if alarm is None else (alarm.thing, alarm.detail)
        if oldest == self._oldest:
            return
        self._oldest = oldest
        if alarm is None:
            log.warning("archive.nothing_waits")
        else:
            log.error("archive.day_waits", day=alarm.thing, detail=alarm.detail)

    async def _find_oldest(self) -> AlarmRow | None:
        async with self._store.connection() as connection:
            alarms = await list_alarms(connection)
        waiting = [alarm for alarm in alarms if alarm.kind == AlarmKind.DAY_NOT_ARCHIVED]
        return min(waiting, key=lambda alarm: alarm.alarm_id, default=None)
