"""How an expired day goes: permitted, emptied of what points into it, taken out of its table, asked for again, dropped.

Whoever does it may end between any two of these steps; the next round, of whichever broker, begins with the first one
again, and finds done what was done. A day that must be archived before stays, and so do the later ones of the log:
there a queue has one start, and to raise it above a later day would expire the earlier one. Days of other tables go on
their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from enum import Enum, auto

from msgdb.archive.day_rows import has_rows
from msgdb.archive.differences import ArchivedIds
from msgdb.archive.permits import Granted, Waiting, let_go, list_dropping, permit
from msgdb.archive.stored_days import StoredDay, list_stored_days
from msgdb.day_tables import DayTable
from msgdb.days.deleting import delete_rows
from msgdb.days.expiry import expire_day, raise_starts
from msgdb.days.rounds import Round
from msgdb.log.partitions import DayPartition, detach_partition, drop_detached, lock_detached
from msgdb.postgres.connections import Connection


class _Became(Enum):
    """What became of an expired day in a round."""

    DROPPED = auto()
    WAITS = auto()
    """It is not permitted."""
    POSTPONED = auto()
    """It is permitted, and still in use."""
    FAILED = auto()
    """It is permitted, and failed for a reason nobody foresaw."""


@dataclass(frozen=True, slots=True)
class DroppingConfig:
    """How long a round tries."""

    detach_timeout_seconds: float
    delete_seconds: float


class DayDropping:
    """Drops what has expired, in one round of maintenance."""

    def __init__(
        self,
        conn: Connection,
        this_round: Round,
        config: DroppingConfig,
        *,
        today: date,
        group_names: Mapping[int, str],
        clock: Callable[[], float],
    ) -> None:
        self._conn = conn
        self._round = this_round
        self._report = this_round.report
        self._config = config
        self._today = today
        self._group_names = group_names
        self._clock = clock

    async def drop_expired(self, table: DayTable, retention_days: int) -> None:
        """Drop the days of *table* of which everything is older than the retention: the oldest first."""
        first_kept_day = self._today - timedelta(days=retention_days)
        delete_until = self._clock() + self._config.delete_seconds
        expired: list[StoredDay] = []
        async with self._round.contained(f"the days of {table.name}"):
            expired = await self._list_expired(table, first_kept_day)
        for stored in expired:
            became = await self._drop(stored, delete_until)
            # What is postponed is on its way out, and only one partition of a table can be; or the time is over.
            if became is _Became.POSTPONED or (became is _Became.WAITS and table.is_log):
                break

    async def _list_expired(self, table: DayTable, first_kept_day: date) -> list[StoredDay]:
        stored = await list_stored_days(self._conn, table, first_kept_day)
        if table.is_partitioned:
            return stored
        # Who has deleted the last row may have ended before that was noted: nothing else tells of such a day.
        there = {each.day for each in stored}
        gone = [day for day in await list_dropping(self._conn, table, first_kept_day) if day not in there]
        return sorted([*stored, *(StoredDay(table, day, None) for day in gone)], key=lambda each: each.day)

    async def _drop(self, stored: StoredDay, delete_until: float) -> _Became:
        # What fails before it is permitted may have to be archived.
        became = _Became.WAITS
        async with self._round.contained(stored.name):
            async with self._conn.transaction():
                answer = await permit(self._conn, stored)
            if isinstance(answer, Waiting):
                self._wait(stored, answer)
                return became
            became = _Became.FAILED
            if stored.partition is None:
                became = await self._delete(stored, answer.ids, delete_until)
            else:
                became = await self._drop_partition(stored, stored.partition)
        if became is _Became.DROPPED:
            self._report.dropped.append(stored.name)
        elif became is _Became.POSTPONED:
            self._report.postponed.append(stored.name)
        return became

    async def _drop_partition(self, stored: StoredDay, partition: DayPartition) -> _Became:
        if stored.table.is_log:
            expired = await expire_day(self._conn, partition, self._group_names)
            self._report.expired_redelivery_count += expired.redelivery_count
            self._report.skipped_message_count += expired.skipped_count
            if not expired.is_complete:
                return _Became.POSTPONED
        try:
            # The wait is cancelled on the server, too; the detach stays pending, and nobody is blocked by that.
            async with asyncio.timeout(self._config.detach_timeout_seconds):
                await detach_partition(self._conn, partition)
                # What came until then has offsets that must not be given out again.
                if stored.table.is_log and not await raise_starts(self._conn, partition):
                    return _Became.POSTPONED
                return await self._drop_detached(stored, partition)
        except TimeoutError:
            return _Became.POSTPONED

    async def _drop_detached(self, stored: StoredDay, partition: DayPartition) -> _Became:
        async with self._conn.transaction():
            # Before the permit: whoever reads the day is waited for without a lock that others need.
            await lock_detached(self._conn, partition)
            answer = await permit(self._conn, stored)
            if isinstance(answer, Granted):
                await let_go(self._conn, stored)
                await drop_detached(self._conn, partition)
                return _Became.DROPPED
        self._wait(stored, answer)
        return _Became.WAITS

    async def _delete(self, stored: StoredDay, ids: ArchivedIds | None, delete_until: float) -> _Became:
        deleted_count, is_all = await delete_rows(
            self._conn, stored, ids, is_time_over=lambda: self._clock() >= delete_until
        )
        self._report.deleted_row_count += deleted_count
        if not is_all:
            return _Became.POSTPONED
        async with self._conn.transaction():
            answer = await permit(self._conn, stored)
            if isinstance(answer, Granted):
                if await has_rows(self._conn, stored.table, stored.day):
                    # Somebody else was at them, and has not deleted them.
                    return _Became.POSTPONED
                await let_go(self._conn, stored)
                return _Became.DROPPED
        self._wait(stored, answer)
        return _Became.WAITS

    def _wait(self, stored: StoredDay, answer: Waiting) -> None:
        self._round.wait_for(stored, (self._today - stored.day).days, answer.reason)
