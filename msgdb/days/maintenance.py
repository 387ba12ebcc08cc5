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
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Final

import structlog

from msgbroker.contract.errors import StoreUnavailableError
from msgdb.acts import forget_acts
from msgdb.day_tables import DAY_TABLES, PARTITIONED, retentions
from msgdb.days.dropping import DayDropping, DroppingConfig
from msgdb.days.rounds import MaintenanceReport, Round
from msgdb.figures.usage import forget_usage_brokers
from msgdb.jobs.listing import forget_jobs
from msgdb.lanes.leases import cut_leases
from msgdb.locks import MAINTENANCE_LOCK_CLASS
from msgdb.log.partitions import DAYS_AHEAD, ensure_for, list_misnamed, list_partitions, today
from msgdb.postgres.pausing import pause
from msgdb.reports.alarms import STORE_ITSELF, forget_alarms, write_alarms
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

_AWAY: Final = (
    "it is detached before its time: attach it again, or queues that end in it give its offsets out once more"
)

# Autovacuum analyzes partitions, never their parent, by which joins are planned. Bodies are sampled, too: once an hour.
_ANALYZE: Final = f"ANALYZE {', '.join(table.name for table in PARTITIONED)}"


@dataclass(frozen=True, slots=True)
class MaintenanceConfig:
    """How the store is kept in shape."""

    retention_days: Mapping[str, int] = field(default_factory=dict)
    """For at least how many days the rows of a table are kept, where that is not its default (`msgdb.day_tables`)."""
    days_ahead: int = DAYS_AHEAD
    interval_seconds: float = 60.0
    detach_timeout_seconds: float = 60.0
    """How long a day's drop waits for those who read the table; it continues in the next round."""
    delete_seconds: float = 10.0
    """How long a round deletes rows of days that are no partitions; it continues in the next round."""
    analyze_interval_seconds: float = 3_600.0

    def __post_init__(self) -> None:
        """Refuse a retention out of its bounds."""
        retentions(self.retention_days)


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
        self._retentions = retentions(config.retention_days)
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
            this_round = Round()
            report = this_round.report
            async with self._store.dedicated_connection() as conn:
                await self._make_days(conn, this_round)
                await self._drop_old_days(conn, this_round)
                async with this_round.contained("leases"):
                    report.cut_lease_count += await cut_leases(conn)
                async with this_round.contained("statistics"):
                    await self._analyze_if_due(conn, report)
                await write_alarms(conn, STORE_ITSELF, "", this_round.alarms)
                await forget_alarms(conn)
                await forget_expression_failures(conn)
                await forget_acts(conn)
                await forget_jobs(conn)
                await forget_usage_brokers(conn)
            return report

    async def _make_days(self, conn: Connection, this_round: Round) -> None:
        first_day = await today(conn)
        for days in range(self._config.days_ahead + 1):
            day = first_day + timedelta(days=days)
            async with this_round.contained(f"making {day}"):
                this_round.report.created += await ensure_for(conn, day)

    async def _drop_old_days(self, conn: Connection, this_round: Round) -> None:
        for table in PARTITIONED:
            for name in await list_misnamed(conn, table.name):
                this_round.leave_alone(name, "it is named like a day, and there is no such day")
        agreed_day = await self._find_agreed_day(conn, this_round)
        if agreed_day is None:
            return
        for table in PARTITIONED:
            first_kept_day = agreed_day - timedelta(days=self._retentions[table.name])
            for partition in await list_partitions(conn, table.name):
                if partition.day >= first_kept_day and (not partition.is_attached or partition.is_detach_pending):
                    this_round.leave_alone(partition.name, _AWAY)
        dropping = DayDropping(
            conn,
            this_round,
            DroppingConfig(self._config.detach_timeout_seconds, self._config.delete_seconds),
            today=agreed_day,
            group_names=self._group_names(),
            clock=self._clock,
        )
        for name, table in DAY_TABLES.items():
            await dropping.drop_expired(table, self._retentions[name])

    async def _find_agreed_day(self, conn: Connection, this_round: Round) -> date | None:
        """Return the day that has come by both clocks; None where nobody can tell, because they differ."""
        theirs, now = await today(conn), self._utc_now()
        # Around midnight the days differ where the clocks do not.
        if abs(theirs - now.date()) > timedelta(days=1):
            why = f"it is {theirs} by the database's clock, and {now:%Y-%m-%d %H:%M} (UTC) by the broker's at work"
            this_round.leave_alone("dropping days", f"{why}: no day is dropped before they agree")
            return None
        return min(theirs, now.date())

    async def _analyze_if_due(self, conn: Connection, report: MaintenanceReport) -> None:
        if self._clock() < self._analyze_at:
            return
        await conn.execute(_ANALYZE)
        self._analyze_at = self._clock() + self._config.analyze_interval_seconds
        report.is_analyzed = True
