"""The maintenance loop: days made ahead, old days dropped, leases cut down, statistics of partitioned tables kept.

Every broker runs it; one at a time does the work. A day that cannot be made, emptied or dropped, for whatever reason,
is set aside with an alarm of the store's own, and the next round tries again: it stops neither the other days nor the
broker, nor the broker that does the next round.

A day is dropped when it is old enough by two clocks, the database's and this process's own: a clock that is wrong for a
moment must not empty the store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Final

import psycopg
import structlog

from msgbroker.contract.errors import InvalidSettingError, StoreUnavailableError
from msgbroker.contract.limits import RETENTION_DAYS_MAX
from msgdb import names
from msgdb.day_tables import PARTITIONED
from msgdb.days.expiry import expire_day
from msgdb.lanes.leases import cut_leases
from msgdb.locks import MAINTENANCE_LOCK_CLASS
from msgdb.log.partitions import (
    DAYS_AHEAD,
    DayPartition,
    detach_partition,
    drop_detached,
    ensure_for,
    list_misnamed,
    list_partitions,
    today,
)
from msgdb.postgres.failures import translate
from msgdb.postgres.pausing import pause
from msgdb.reports.alarms import STORE_ITSELF, Alarm, AlarmKind, forget_alarms, write_alarms
from msgdb.reports.expression_failures import forget_expression_failures
from msgdb.store import Connection, MessageStore

log = structlog.get_logger(__name__)

# Of a transaction, because a lock of the session would not survive a pooler. That transaction must hold no snapshot
# while the work goes on elsewhere: a detach waits for older ones. Hence no parameters and never prepared: in the
# extended protocol the statement's portal would keep its snapshot until the next statement.
_TRY_LOCK: Final = f"""
SELECT pg_try_advisory_xact_lock({MAINTENANCE_LOCK_CLASS}, 0),
       set_config('idle_in_transaction_session_timeout', '0', true)
"""

_DETAIL_CHARS_MAX: Final = 500
_AWAY: Final = (
    "it is detached before its time: attach it again, or queues that end in it give its offsets out once more"
)

# Autovacuum analyzes partitions, never their parent, by which joins are planned. Bodies are sampled, too: once an hour.
_ANALYZE: Final = "ANALYZE message, publisher_frame"


@dataclass(frozen=True, slots=True)
class MaintenanceConfig:
    """How the store is kept in shape."""

    retention_days: int = RETENTION_DAYS_MAX
    """A message is kept for at least so many days."""
    days_ahead: int = DAYS_AHEAD
    interval_seconds: float = 60.0
    detach_timeout_seconds: float = 60.0
    """How long a day's drop waits for those who read the table; it continues in the next round."""
    analyze_interval_seconds: float = 3_600.0

    def __post_init__(self) -> None:
        """Refuse a retention out of its bounds."""
        if not 1 <= self.retention_days <= RETENTION_DAYS_MAX:
            raise InvalidSettingError("retention_days", f"must be 1 to {RETENTION_DAYS_MAX}")


@dataclass(slots=True)
class MaintenanceReport:
    """What one round of maintenance did."""

    created: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    postponed: list[str] = field(default_factory=list)
    """The days that are due to be dropped, but still in use: tried again in the next round."""
    failed: list[str] = field(default_factory=list)
    """The work that failed for a reason nobody foresaw."""
    expired_redelivery_count: int = 0
    """How many redeliveries became dead letters, because their day went."""
    skipped_message_count: int = 0
    """How many messages a group had not settled when their day went, for each group."""
    cut_lease_count: int = 0
    """How many leases were cut down that were from before the database's clock was set back."""
    is_analyzed: bool = False

    @property
    def is_empty(self) -> bool:
        """Tell whether there was nothing to do."""
        return self == MaintenanceReport()


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Maintenance:
    """Keeps the store in shape, unless another broker does."""

    def __init__(
        self,
        store: MessageStore,
        config: MaintenanceConfig,
        *,
        group_names: Callable[[], Mapping[int, str]],
        clock: Callable[[], float] = time.monotonic,
        utc_now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._store = store
        self._config = config
        self._group_names = group_names
        self._clock = clock
        self._utc_now = utc_now
        self._analyze_at = clock() + config.analyze_interval_seconds

    async def run(self, stop: asyncio.Event) -> None:
        """Do what is due, every so often, until *stop* is set."""
        while not stop.is_set():
            try:
                report = await self.maintain_once()
            except StoreUnavailableError:
                # Partitions are made days ahead, and what is to be dropped stays to be dropped.
                log.warning("maintenance.store_unavailable", exc_info=True)
            else:
                if report is not None and not report.is_empty:
                    log.info("maintenance.done", **asdict(report))
            await pause(stop, self._config.interval_seconds)

    async def maintain_once(self) -> MaintenanceReport | None:
        """Do what is due; return None if another broker is at it."""
        # Of its own: what the pool lends is not lent for so long.
        async with self._store.dedicated_connection() as guard, guard.transaction():
            locked = await (await guard.execute(_TRY_LOCK, prepare=False)).fetchone()
            if locked is None or not locked[0]:
                return None
            report = MaintenanceReport()
            alarms: list[Alarm] = []
            async with self._store.dedicated_connection() as conn:
                await self._make_days(conn, report, alarms)
                await self._drop_old_days(conn, report, alarms)
                async with self._contained("leases", report, alarms):
                    report.cut_lease_count += await cut_leases(conn)
                async with self._contained("statistics", report, alarms):
                    await self._analyze_if_due(conn, report)
                await write_alarms(conn, STORE_ITSELF, "", alarms)
                await forget_alarms(conn)
                await forget_expression_failures(conn)
            return report

    @asynccontextmanager
    async def _contained(self, thing: str, report: MaintenanceReport, alarms: list[Alarm]) -> AsyncIterator[None]:
        """Go on where *thing* fails for a reason nobody foresaw; the alarm stands until a round goes well."""
        try:
            yield
        except (StoreUnavailableError, MemoryError):
            raise
        except Exception as error:
            # One day must not end broker after broker. What is known of an outage is raised, locks of others aside.
            if translate(error) is not None and not isinstance(error, psycopg.errors.LockNotAvailable):
                raise
            log.exception("maintenance.failed", thing=thing)
            report.failed.append(thing)
            detail = f"{type(error).__name__}: {' '.join(str(error).split())}"[:_DETAIL_CHARS_MAX]
            alarms.append(Alarm(AlarmKind.PARTITION_SET_ASIDE, thing, detail))

    def _leave_alone(self, thing: str, why: str, report: MaintenanceReport, alarms: list[Alarm]) -> None:
        log.error("maintenance.left_alone", thing=thing, why=why)
        report.failed.append(thing)
        alarms.append(Alarm(AlarmKind.PARTITION_SET_ASIDE, thing, why))

    async def _make_days(self, conn: Connection, report: MaintenanceReport, alarms: list[Alarm]) -> None:
        first_day = await today(conn)
        for days in range(self._config.days_ahead + 1):
            day = first_day + timedelta(days=days)
            async with self._contained(f"making {day}", report, alarms):
                report.created += await ensure_for(conn, day)

    async def _drop_old_days(self, conn: Connection, report: MaintenanceReport, alarms: list[Alarm]) -> None:
        first_kept_day = await self._find_first_kept_day(conn, report, alarms)
        for table in (each.name for each in PARTITIONED):
            for name in await list_misnamed(conn, table):
                self._leave_alone(name, "it is named like a day, and there is no such day", report, alarms)
            if first_kept_day is None:
                continue
            partitions = await list_partitions(conn, table)
            for partition in partitions:
                if partition.day >= first_kept_day and (not partition.is_attached or partition.is_detach_pending):
                    self._leave_alone(partition.name, _AWAY, report, alarms)
            # The oldest first, one after the other: only one day of a table can be on its way out.
            for partition in partitions:
                if partition.day >= first_kept_day:
                    break
                is_dropped = None
                async with self._contained(partition.name, report, alarms):
                    is_dropped = await self._drop_day(conn, partition, report)
                if is_dropped is False:
                    break

    async def _find_first_kept_day(
        self, conn: Connection, report: MaintenanceReport, alarms: list[Alarm]
    ) -> date | None:
        """Return the day before which all days are to go; None where nobody can tell, because the clocks differ."""
        theirs, now = await today(conn), self._utc_now()
        # Around midnight the days differ where the clocks do not.
        if abs(theirs - now.date()) > timedelta(days=1):
            why = f"it is {theirs} by the database's clock, and {now:%Y-%m-%d %H:%M} (UTC) by the broker's at work"
            self._leave_alone("dropping days", f"{why}: no day is dropped before they agree", report, alarms)
            return None
        return min(theirs, now.date()) - timedelta(days=self._config.retention_days)

    async def _drop_day(self, conn: Connection, partition: DayPartition, report: MaintenanceReport) -> bool:
        if partition.table == names.MESSAGE:
            expired = await expire_day(conn, partition, self._group_names())
            report.expired_redelivery_count += expired.redelivery_count
            report.skipped_message_count += expired.skipped_count
            if not expired.is_complete:
                report.postponed.append(partition.name)
                return False
        try:
            # The wait is cancelled on the server, too; the detach stays pending, and nobody is blocked by that.
            async with asyncio.timeout(self._config.detach_timeout_seconds):
                await detach_partition(conn, partition)
                await drop_detached(conn, partition)
        except TimeoutError:
            report.postponed.append(partition.name)
            return False
        report.dropped.append(partition.name)
        return True

    async def _analyze_if_due(self, conn: Connection, report: MaintenanceReport) -> None:
        if self._clock() < self._analyze_at:
            return
        await conn.execute(_ANALYZE)
        self._analyze_at = self._clock() + self._config.analyze_interval_seconds
        report.is_analyzed = True
