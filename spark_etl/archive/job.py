"""The job that archives a day: claim it, close it, write it and read it back, list it, and mark it archived.

Whatever dies in between leaves a run without a manifest, or one that no day points to: the day is archived again by
another run, in a directory of its own. It is marked by the last step alone, and only while the run's lease stands.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from typing import Final
from uuid import UUID

import structlog
from pyspark.sql import SparkSession

from msgbroker.contract.errors import ArchiveDiffersError, MessageCenterError, RunLostError
from msgdb import ids, names
from msgdb.archive import claims
from msgdb.archive.closing import close_day
from msgdb.archive.listing import list_runs as list_noted_runs
from msgdb.archive.records import ArchiveRun, ClosedDay, VerifiedRange, VerifiedRun
from msgdb.archive.replicas import wait_for_replay
from msgdb.archive.sizes import measure_ranges
from msgdb.postgres.connections import Connection
from msgdb.postgres.history import find_origin
from msgdb.store import MessageStore
from spark_etl.archive.config import ArchiveConfig
from spark_etl.archive.lease import Lease, kept
from spark_etl.archive.parts import PartInputs, WrittenPart, write_part
from spark_etl.archive.planning import PartPlan, plan_parts
from spark_etl.archive.progress import Progress, Step, Tell, tell_nobody
from spark_etl.archive.task_errors import task_errors
from spark_etl.files.digest import PageDigest, combine, kind_for
from spark_etl.files.manifest import Manifest, QueueDigest
from spark_etl.files.places import (
    Place,
    check_store,
    check_there,
    list_runs,
    read_manifest,
    run_directory,
    write_manifest,
)
from spark_etl.running import run_to_end
from spark_etl.source.contract import SOURCES

log = structlog.get_logger(__name__)

APPLICATION: Final = "msgcenter archive"
_LOOK_SECONDS: Final = 0.5
_END_SECONDS: Final = 10.0
"""How long a job of Spark's that was cancelled is waited for."""


@dataclass(frozen=True, slots=True)
class ArchivedDay:
    """What a run has archived."""

    manifest: Manifest
    path: str
    """Of the manifest, below the archive's root."""


def run(
    spark: SparkSession,
    config: ArchiveConfig,
    day: date,
    *,
    table: str = names.MESSAGE,
    again: bool = False,
    tell: Tell = tell_nobody,
) -> ArchivedDay:
    """Archive a day of a table.

    Args:
        spark: Where it is done.
        config: From where to where.
        day: In UTC; it must be over.
        table: `message` or `dead_letter`.
        again: Archive it though it is archived: as a further run, which readers go by from then on.
        tell: Told how far it is.

    Raises:
        MessageCenterError: The day cannot be archived, or not now; the error says why.
    """
    return run_to_end(_archive(spark, config, day, table=table, again=again, tell=tell))


async def _archive(
    spark: SparkSession, config: ArchiveConfig, day: date, *, table: str, again: bool, tell: Tell
) -> ArchivedDay:
    place = Place.at(config.place)
    async with MessageStore.open(config.url, pool_size=3, application_name=APPLICATION) as store:
        return await _Job(spark, config, store, place, tell).archive(table, day, again=again)


async def check_owner(store: MessageStore, place: Place) -> None:
    """See that *place* has the archive of *store*, or none yet. Raises ArchivePlaceError."""
    async with store.connection() as connection:
        origin = await find_origin(connection)
    if origin is not None:
        await asyncio.to_thread(check_store, place, origin)


async def _mint_run_id(connection: Connection, place: Place, table: str, day: date) -> UUID:
    """Return an id behind those of all runs of the day before: readers go by the last one, whoever's clock named it.

    Those that the store knows, and those that are there: a store that was promoted may have lost some.
    """
    noted = [run.run_id for run in await list_noted_runs(connection, table, day, limit=1)]
    before = max([*noted, *await asyncio.to_thread(list_runs, place, table, day)], default=UUID(int=0))
    now_us = max(time.time_ns() // 1_000, ids.time_us_of(before.bytes) + 1_000)
    return UUID(bytes=ids.to_bytes(ids.mint_run(now_us)))


@dataclass(frozen=True, slots=True)
class _Job:
    """What days are archived with. A step is given the run that it is of, or the lease by which that has its day."""

    spark: SparkSession
    config: ArchiveConfig
    store: MessageStore
    place: Place
    tell: Tell

    async def archive(self, table: str, day: date, *, again: bool) -> ArchivedDay:
        """Begin a run of the day, and take it to its end, whichever that is."""
        claimed = await self._claim(table, day, again=again)
        try:
            async with kept(self.store, claimed, self.config.lease_seconds) as lease:
                return await self._carry_out(lease)
        except RunLostError:
            raise
        except BaseException as error:
            with suppress(MessageCenterError):
                async with self.store.transaction() as connection:
                    await claims.fail(connection, claimed, _cause(error))
            raise

    async def _claim(self, table: str, day: date, *, again: bool) -> ArchiveRun:
        self.tell(Progress(Step.CLAIMING))
        await check_owner(self.store, self.place)
        async with self.store.transaction() as connection:
            return await claims.claim(
                connection,
                table,
                day,
                run_id=await _mint_run_id(connection, self.place, table, day),
                holder=self.config.holder,
                lease_seconds=self.config.lease_seconds,
                again=again,
            )

    async def _carry_out(self, lease: Lease) -> ArchivedDay:
        """Close, write, list and mark the day."""
        run = lease.run
        closed = await self._close(lease)
        inputs, plans = await self._plan(run, closed)
        written = await lease.during(self._write(run, inputs, plans))
        digests = _digests(closed, inputs, written)
        manifest = await lease.during(asyncio.to_thread(self._manifest, run, closed, digests, written))
        self.tell(Progress(Step.MARKING, len(plans), len(plans), manifest.rows))
        # Readers go by a manifest from the moment it is there. All was read while the day was this run's: a lease that
        # has passed once is never renewed.
        async with self.store.transaction() as connection:
            await claims.renew(connection, run, self.config.lease_seconds)
        path = await lease.during(asyncio.to_thread(self._list, manifest, inputs.directory))
        async with self.store.transaction() as connection:
            await claims.mark_verified(connection, run, _verified(manifest, digests, self.place.below(path)))
        return ArchivedDay(manifest, path)

    async def _close(self, lease: Lease) -> ClosedDay:
        self.tell(Progress(Step.CLOSING))
        async with self.store.connection() as connection:
            closed = await lease.during(close_day(connection, lease.run))
        if self.config.replica_url is not None:
            self.tell(Progress(Step.WAITING))
            replica_url = self.config.replica_url
            async with MessageStore.open(replica_url, pool_size=1) as replica, replica.connection() as connection:
                waiting = wait_for_replay(connection, lease.run, closed, wait_seconds=self.config.replay_seconds_max)
                await lease.during(waiting)
        return closed

    async def _plan(self, run: ArchiveRun, closed: ClosedDay) -> tuple[PartInputs, list[PartPlan]]:
        async with self.store.connection() as connection:
            measured = await measure_ranges(connection, run.table, closed.partition, closed.ranges)
            found = await (await connection.execute("SELECT current_setting('server_version_num')::integer")).fetchone()
        assert found is not None, "it is one row"
        is_partitioned = SOURCES[run.table].queue_column is not None
        inputs = PartInputs(
            url=self.config.read_url,
            place_url=self.place.url,
            directory=run_directory(run.table, run.day, run.run_id),
            table=run.table,
            rows_from=closed.partition,
            conditions=() if is_partitioned else _of_day(run),
            digest_kind=kind_for(found[0]),
        )
        await asyncio.to_thread(self.place.make_directory, inputs.directory)
        return inputs, plan_parts(measured, self.config.file_bytes)

    async def _write(self, run: ArchiveRun, inputs: PartInputs, plans: Sequence[PartPlan]) -> list[WrittenPart]:
        """Have Spark write all parts, and tell how far it is."""
        if not plans:
            return []
        group = str(run.run_id)
        working = asyncio.ensure_future(asyncio.to_thread(self._write_in_thread, run, inputs, plans))
        try:
            while not working.done():
                # Java may take its time to answer: the lease is renewed meanwhile.
                done = await asyncio.to_thread(self._count_done, group)
                self.tell(Progress(Step.WRITING, done, len(plans), sum(plan.rows_about for plan in plans)))
                await asyncio.wait([working], timeout=_LOOK_SECONDS)
            return await working
        finally:
            if not working.done():
                # With the job that the thread may be about to begin, for which Python's Spark has no word of its own.
                self.spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(group)  # noqa: SLF001
                await asyncio.wait([working], timeout=_END_SECONDS)
            if working.done() and not working.cancelled():
                working.exception()

    def _write_in_thread(self, run: ArchiveRun, inputs: PartInputs, plans: Sequence[PartPlan]) -> list[WrittenPart]:
        context = self.spark.sparkContext
        context.setJobGroup(str(run.run_id), f"archive {run.table} of {run.day}", interruptOnCancel=True)
        with task_errors():
            return context.parallelize(plans, len(plans)).map(partial(write_part, inputs)).collect()

    def _count_done(self, group: str) -> int:
        """Return how many tasks of the run's job are done."""
        tracker = self.spark.sparkContext.statusTracker()
        stages = [
            stage
            for job_id in tracker.getJobIdsForGroup(group)
            if (job := tracker.getJobInfo(job_id)) is not None
            for stage_id in job.stageIds
            if (stage := tracker.getStageInfo(stage_id)) is not None
        ]
        return sum(stage.numCompletedTasks for stage in stages)

    def _list(self, manifest: Manifest, directory: str) -> str:
        """Write the manifest, once all that it lists was seen to be there; return its path."""
        check_there(self.place, manifest.files)
        return write_manifest(self.place, manifest, directory)

    def _manifest(
        self, run: ArchiveRun, closed: ClosedDay, digests: tuple[QueueDigest, ...], written: Sequence[WrittenPart]
    ) -> Manifest:
        system_identifier, _, timeline = closed.timeline.partition("/")
        base = None
        if run.base_run_id is not None:
            base = read_manifest(self.place, run_directory(run.table, run.day, run.base_run_id))
            if base is None:
                raise ArchiveDiffersError(
                    f"the files of {run.table} of {run.day} that were archived before are not here"
                )
        return Manifest(
            table=run.table,
            day=run.day,
            run_id=run.run_id,
            base_run_id=run.base_run_id,
            system_identifier=system_identifier,
            timeline=timeline,
            closed_at=closed.closed_at,
            written_at=datetime.now(UTC),
            columns=tuple((each.name, str(each.type)) for each in SOURCES[run.table].schema),
            digests=(*(base.digests if base else ()), *digests),
            files=(*(base.files if base else ()), *(part.file for part in written if part.file.rows)),
        )


def _digests(closed: ClosedDay, inputs: PartInputs, written: Sequence[WrittenPart]) -> tuple[QueueDigest, ...]:
    """Return the digest of each queue, put together from those of its pieces."""
    pages: dict[int, list[PageDigest]] = {each.queue_id: [] for each in closed.ranges}
    for part in sorted(written, key=lambda part: part.number):
        for each in part.digests:
            # Parts are numbered in the order of offsets within a queue.
            pages[each.piece.queue_id] += each.pages
    digests = []
    for queue_id, first, last, _ in closed.ranges:
        rows = sum(page.rows for page in pages[queue_id])
        if SOURCES[inputs.table].queue_column is not None and rows != last - first + 1:
            raise ArchiveDiffersError(f"queue {queue_id} has {rows} rows, and offsets {first} to {last}")
        digests.append(QueueDigest(queue_id, first, last, rows, combine(inputs.digest_kind, pages[queue_id])))
    return tuple(digests)


def _verified(manifest: Manifest, own: Sequence[QueueDigest], path: str) -> VerifiedRun:
    return VerifiedRun(
        manifest=path,
        row_count=manifest.rows,
        file_count=len(manifest.files),
        file_bytes=manifest.bytes,
        ranges=tuple(VerifiedRange(each.queue_id, each.rows, each.digest) for each in own),
    )


def _of_day(run: ArchiveRun) -> tuple[str, ...]:
    """Return what tells the rows of a day from others, where its table is not partitioned by days."""
    column, midnight = SOURCES[run.table].day_column, f"'{run.day} 00:00+00'::timestamptz"
    return (f"t.{column} >= {midnight}", f"t.{column} < {midnight} + interval '24 hours'")


def _cause(error: BaseException) -> str:
    if isinstance(error, (KeyboardInterrupt, asyncio.CancelledError)):
        return "it was interrupted"
    first, *_ = (str(error) or type(error).__name__).splitlines()
    return first[:500]
