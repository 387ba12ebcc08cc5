"""Work that failed for a reason nobody foresaw: set aside with an alarm, and tried again later.

The rule of the house: what fails in an unknown way must not end the broker, or the next broker would take the same
lane, partition or topic over and end as well. So each such unit of work runs inside of `contained`, which sets the unit
aside; `is_waiting` says that it is not its time yet, and success clears the alarm. What is known to pass (a database is
out of reach) goes through to the loop, which survives it; what concerns the whole process (no memory) ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

import structlog

from msgbroker.contract.errors import ConfigUnavailableError, StoreUnavailableError
from msgbroker.server import clock
from msgbroker.server.alarm_board import AlarmBoard
from msgdb.alarms import Alarm

log = structlog.get_logger(__name__)

UnitT = TypeVar("UnitT", bound=Hashable)

WAIT_SECONDS_MIN: Final = 1.0
WAIT_SECONDS_MAX: Final = 60.0
_PASSED_ON: Final = (StoreUnavailableError, ConfigUnavailableError, MemoryError)


class SetAside(Generic[UnitT]):
    """The units of one kind that are set aside. *describe* gives a unit's alarm, without its detail."""

    def __init__(
        self, board: AlarmBoard, describe: Callable[[UnitT], Alarm], now: Callable[[], float] = clock.now
    ) -> None:
        self._board = board
        self._describe = describe
        self._now = now
        self._failed: dict[UnitT, tuple[float, float, Alarm]] = {}
        """Each unit's next try, its wait, and its alarm."""

    @contextmanager
    def contained(self, unit: UnitT) -> Iterator[None]:
        """Set *unit* aside if what is done inside fails for a reason nobody foresaw."""
        try:
            yield
        except _PASSED_ON:
            raise
        except Exception as error:  # noqa: BLE001 - what it is nobody knows: that is the point
            self.failed(unit, error)

    def failed(self, unit: UnitT, error: Exception) -> None:
        """Set *unit* aside: for twice as long as the last time."""
        known = self._failed.get(unit)
        wait_seconds = WAIT_SECONDS_MIN if known is None else min(2 * known[1], WAIT_SECONDS_MAX)
        alarm = self._describe(unit)._replace(detail=f"{type(error).__name__}: {' '.join(str(error).split())}")
        self._failed[unit] = (self._now() + wait_seconds, wait_seconds, alarm)
        log.error("work.set_aside", kind=alarm.kind.value, thing=alarm.thing, seconds=wait_seconds, exc_info=error)
        self._board.raise_alarm(alarm)

    def is_waiting(self, unit: UnitT) -> bool:
        """Return whether *unit* is to be left alone for now."""
        failed = self._failed.get(unit)
        return failed is not None and self._now() < failed[0]

    def is_set_aside(self, unit: UnitT) -> bool:
        """Return whether *unit* failed and has not worked since."""
        return unit in self._failed

    def worked(self, unit: UnitT) -> None:
        """Note that *unit* works (again), or is not this broker's any more."""
        failed = self._failed.pop(unit, None)
        if failed is not None:
            self._board.clear(failed[2].kind, failed[2].thing)
