"""What is done once a day: archive every day that waits, one after the other, and sweep away what earlier runs left."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import partial
from uuid import UUID

import structlog
from pyspark.sql import SparkSession

from msgbroker.contract.errors import MessageCenterError
from msgdb.archive.listing import list_all_days
from msgdb.archive.records import DayState
from msgdb.day_tables import ARCHIVABLE_NAMES
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from spark_etl.archive.config import ArchiveConfig
from spark_etl.archive.job import APPLICATION, ArchivedDay, check_owner, run
from spark_etl.archive.progress import Progress, Tell, tell_nobody
from spark_etl.archive.sweep import sweep
from spark_etl.files.places import Place
from spark_etl.running import run_to_end

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class DailyReport:
    """What was done."""

    archived: list[ArchivedDay] = field(default_factory=list)
    failed: dict[tuple[str, date], MessageCenterError] = field(default_factory=dict)
    """The days that could not be archived now, each with why: the others were."""
    removed: list[str] = field(default_factory=list)
    """The directories of runs that nobody reads any more."""


def run_daily(
    open_spark: Callable[[], SparkSession],
    config: ArchiveConfig,
    *,
    tables: Sequence[str] = ARCHIVABLE_NAMES,
    tell: Tell = tell_nobody,
) -> DailyReport:
    """Archive all days of *tables* that are over and not archived, the oldest first, and sweep.

    Spark is started, by *open_spark*, only if a day waits. A day that cannot be archived does not keep the others from
    it. Raises ArchivePlaceError where the place has the archive of another store: what that has there is not to be
    swept.
    """
    waiting = run_to_end(_list_all_waiting(config, tables))
    report = DailyReport()
    spark = open_spark() if waiting else None
    for table, day in waiting:
        assert spark is not None, "a day waits"
        try:
            report.archived.append(run(spark, config, day, table=table, tell=partial(_tell_of, tell, table, day)))
        except MessageCenterError as error:
            log.error("archive.day_failed", table=table, day=f"{day}", problem=str(error))  # noqa: TRY400 - said as one line
            report.failed[table, day] = error
    grace = timedelta(days=config.grace_days)
    for table in tables:
        in_use = run_to_end(_list_in_use(config, table))
        report.removed += sweep(Place.at(config.place), table, grace=grace, in_use=in_use)
    return report


def _tell_of(tell: Tell, table: str, day: date, progress: Progress) -> None:
    tell(replace(progress, of=f"{table} of {day}"))


@asynccontextmanager
async def _connection(config: ArchiveConfig) -> AsyncIterator[Connection]:
    opened = MessageStore.open(config.url, pool_size=1, application_name=APPLICATION)
    async with opened as store, store.connection() as connection:
        yield connection


async def _list_all_waiting(config: ArchiveConfig, tables: Sequence[str]) -> list[tuple[str, date]]:
    """Return what waits, table by table. Raises ArchivePlaceError where the place is another store's."""
    async with MessageStore.open(config.url, pool_size=1, application_name=APPLICATION) as store:
        await check_owner(store, Place.at(config.place))
    return [(table, day) for table in tables for day in await _list_waiting(config, table)]


async def _list_waiting(config: ArchiveConfig, table: str) -> list[date]:
    """Return the days that the store has and no run has archived as they are, the oldest first."""
    async with _connection(config) as connection:
        days = await list_all_days(connection, table)
    # A day that was dropped and is there again is supplemented.
    to_do = {DayState.PENDING, DayState.DROPPED}
    return sorted(each.day for each in days if each.is_stored and each.state in to_do)


async def _list_in_use(config: ArchiveConfig, table: str) -> set[UUID]:
    """Return the runs that days point to, and those that are at work."""
    async with _connection(config) as connection:
        days = await list_all_days(connection, table)
    pointed_to = {each.archived_by.run_id for each in days if each.archived_by is not None}
    return pointed_to | {each.last_run.run_id for each in days if each.last_run is not None and each.last_run.is_alive}
