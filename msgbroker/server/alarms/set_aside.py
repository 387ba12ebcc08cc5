"""Work that failed for a reason nobody foresaw: set aside with an alarm, and tried again later.

The rule of the house: what fails in an unknown way must not end the broker, or the next broker would take the same
lane, partition or topic over and end as well. So each such unit of work runs inside of `contained`, which sets the
unit aside; `is_waiting` says that it is not its time yet, and success clears the alarm: or that nobody tries any more,
where whoever needed the unit may be gone (`forget_untried`). Where many units are worked on at once, `divided` finds
those that fail. What is known to pass (a database is out of reach) goes through to the loop, which survives it; what
concerns the whole process (no memory) ends it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import structlog

from msgbroker.contract.errors import ConfigUnavailableError, StoreUnavailableError
from msgbroker.server import clock
from msgbroker.server.alarms.board import AlarmBoard
from msgdb.postgres.failures import RowsHeldError
from msgdb.reports.alarms import Alarm

log = structlog.get_logger(__name__)

UnitT = TypeVar("UnitT", bound=Hashable)
PartT = TypeVar("PartT")

WAIT_SECONDS_MIN: Final = 1.0
WAIT_SECONDS_MAX: Final = 60.0
UNTRIED_SECONDS_MAX: Final = 300.0
"""What waits to be tried for so long is not needed here any more, by anybody."""
_PASSED_ON: Final = (StoreUnavailableError, ConfigUnavailableError, MemoryError)


@dataclass(frozen=True, slots=True)
class _Failure:
    """What is remembered of a unit that failed."""

    again_at: float
    wait_seconds: float
    alarm: Alarm


class SetAside(Generic[UnitT]):
    """Keeps the units of one kind that are set aside. *describe* gives a unit's alarm, without its detail."""

    def __init__(
        self, board: AlarmBoard, describe: Callable[[UnitT], Alarm], now: Callable[[], float] = clock.now
    ) -> None:
        self._board = board
        self._describe = describe
        self._now = now
        self._failures: dict[UnitT, _Failure] = {}

    @property
    def units(self) -> Collection[UnitT]:
        """The units that failed and have not worked since."""
        return self._failures.keys()

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
        known = self._failures.get(unit)
        wait_seconds = WAIT_SECONDS_MIN if known is None else min(2 * known.wait_seconds, WAIT_SECONDS_MAX)
        named = self._describe(unit) if known is None else known.alarm
        alarm = named._replace(detail=f"{type(error).__name__}: {' '.join(str(error).split())}")
        self._failures[unit] = _Failure(self._now() + wait_seconds, wait_seconds, alarm)
        log.error("work.set_aside", kind=alarm.kind.value, thing=alarm.thing, seconds=wait_seconds, exc_info=error)
        self._board.raise_alarm(alarm)

    def failed_unless_held(self, unit: UnitT, error: Exception) -> None:
        """Set *unit* aside, but not where somebody has locked its rows: that passes, and it is tried again soon."""
        if not isinstance(error, RowsHeldError):
            self.failed(unit, error)

    def is_waiting(self, unit: UnitT) -> bool:
        """Return whether *unit* is to be left alone for now."""
        failure = self._failures.get(unit)
        return failure is not None and self._now() < failure.again_at

    def is_set_aside(self, unit: UnitT) -> bool:
        """Return whether *unit* failed and has not worked since."""
        return unit in self._failures

    def worked(self, unit: UnitT) -> None:
        """Note that *unit* works (again), or is not this broker's any more."""
        failure = self._failures.pop(unit, None)
        if failure is not None:
            self._board.clear(failure.alarm.kind, failure.alarm.thing)

    def forget_untried(self) -> None:
        """Forget the units that nobody tries any more, though their time came long ago: others see for themselves."""
        oldest = self._now() - UNTRIED_SECONDS_MAX
        for unit in [unit for unit, failure in self._failures.items() if failure.again_at < oldest]:
            self.worked(unit)


async def divided(
    parts: Sequence[PartT],
    act: Callable[[Sequence[PartT]], Awaitable[None]],
    failed: Callable[[PartT, Exception], None],
) -> None:
    """Do *act* with all *parts* at once; where that fails for an unknown reason, with each half of them, and so on.

    A part that fails alone is given to *failed*. So is one whose rows somebody has locked: the others go on. An outage
    is raised as ever.
    """
    waiting = [parts] if parts else []
    while waiting:
        some = waiting.pop()
        try:
            await act(some)
        except RowsHeldError as error:
            failure: Exception = error
        except _PASSED_ON:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is somebody's of these
            failure = error
        else:
            continue
        if len(some) == 1:
            failed(some[0], failure)
        else:
            middle = len(some) // 2
            waiting += (some[middle:], some[:middle])
