"""The alarms that stand at this broker, and the loop that writes them to msgdb, where everybody reads them.

An alarm is state, not an event: it stands from when it is raised until it is cleared, and is logged then. Parts of the
broker raise and clear them here, at once and without waiting; what cannot be written is written later.

Some are raised again every second for as long as they stand. Whatever becomes of an alarm, it is logged once.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

import structlog

from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.server import clock
from msgbroker.server.loops import pause
from msgdb.reports.alarms import Alarm, AlarmKind, write_alarms
from msgdb.store import MessageStore

log = structlog.get_logger(__name__)

STANDING_MAX: Final = 500
"""How many alarms stand at most. More are only logged, and stand once others are cleared: by then somebody knows."""
RAISED_MAX: Final = 2_000
"""So many are kept: those that stand, and those that are only logged. Of the rest it is logged that there is more."""
_TEXT_CHARS_MAX: Final = 500
_WRITE_SECONDS: Final = 1.0
_REPEAT_SECONDS: Final = 20.0
"""How often what stands is written again: three times in the time after which others take the broker for gone."""

_Name = tuple[AlarmKind, str]


class AlarmBoard:
    """Keeps the alarms that stand at this broker, and writes them to msgdb."""

    def __init__(
        self, store: MessageStore, broker_id: UUID, address: str, now: Callable[[], float] = clock.now
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._address = address
        self._now = now
        self._raised: dict[_Name, Alarm] = {}
        self._has_more = False
        """Whether there are alarms beyond the bound, which was logged."""
        self._has_changed = False
        # A process that was killed has another id now, and cannot have left any.
        self._is_written_empty = True
        self._write_at = 0.0

    @property
    def standing(self) -> list[Alarm]:
        """The alarms that stand, in the order in which they were raised."""
        return [*itertools.islice(self._raised.values(), STANDING_MAX)]

    def raise_alarm(self, alarm: Alarm) -> None:
        """Let *alarm* stand; one of that kind and thing that stands already gets its new detail."""
        alarm = alarm._replace(thing=_storable(alarm.thing), detail=_storable(alarm.detail))
        name = (alarm.kind, alarm.thing)
        known = self._raised.get(name)
        if known == alarm:
            return
        if known is None:
            if len(self._raised) >= RAISED_MAX:
                self._note_more()
                return
            log.error("alarm.raised", kind=alarm.kind.value, thing=alarm.thing, detail=alarm.detail)
        self._raised[name] = alarm
        self._has_changed = True

    def _note_more(self) -> None:
        if not self._has_more:
            self._has_more = True
            log.error("alarms.too_many", count=len(self._raised))

    def clear(self, kind: AlarmKind, thing: str) -> None:
        """Let the alarm stand no longer, if it does."""
        alarm = self._raised.pop((kind, _storable(thing)), None)
        if alarm is not None:
            self._has_more = False
            log.warning("alarm.cleared", kind=alarm.kind.value, thing=alarm.thing)
            self._has_changed = True

    def replace(self, kind: AlarmKind, alarms: Iterable[Alarm]) -> None:
        """Let of that kind just these stand."""
        wanted = {_storable(alarm.thing): alarm for alarm in alarms}
        for _, thing in [name for name in self._raised if name[0] is kind and name[1] not in wanted]:
            self.clear(kind, thing)
        for alarm in wanted.values():
            self.raise_alarm(alarm)

    async def run(self, stop: asyncio.Event) -> None:
        """Write what changed, and repeat what stands, until *stop* is set."""
        while not stop.is_set():
            await self.write_if_due()
            await pause(stop, _WRITE_SECONDS)

    async def write_if_due(self) -> None:
        """Write what stands, if it changed or must be repeated; keep it for later where that cannot be done."""
        is_due = self._has_changed or (self._raised and self._now() >= self._write_at)
        if not is_due or (not self._raised and self._is_written_empty):
            return
        self._has_changed = False
        try:
            async with self._store.connection() as connection:
                await write_alarms(connection, self._broker_id, self._address, self.standing)
        except StoreUnavailableError:
            log.warning("alarms.store_unavailable")
            self._has_changed = True
            return
        self._is_written_empty = not self._raised
        self._write_at = self._now() + _REPEAT_SECONDS

    async def leave(self) -> None:
        """Clear what this broker said: it stops, and others see for themselves. Raises StoreUnavailableError."""
        if not self._is_written_empty:
            async with self._store.connection() as connection:
                await write_alarms(connection, self._broker_id, self._address, ())
            self._is_written_empty = True


def _storable(text: str) -> str:
    """Return *text* as the store takes it: other people's words may be in it."""
    return text[:_TEXT_CHARS_MAX].replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
