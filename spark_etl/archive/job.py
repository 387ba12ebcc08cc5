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
from msgdb.store import MessageStore
from spark_etl.archive.config import ArchiveConfig
from spark_etl.archive.lease import Lease, kept
from spark_etl.archive.parts import PartInputs, WrittenPart, write_part
from spark_etl.archive.planning import PartPlan, plan_parts
from spark_etl.archive.progress import Progress, Step, Tell, tell_nobody
from spark_etl.archive.task_errors import task_errors
from spark_etl.files.digest import PageDigest, combine, kind_for
from spark_etl.files.manifest import Manifest, QueueDigest
from spark_etl.files.places import Place, check_there, list_runs, read_manifest, run_directory, write_manifest
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
    return asyncio.run(_archive(spark, config, day, table=table, again=again, tell=tell))


async def _archive(
    spark: SparkSession, config: ArchiveConfig, day: date, *, table: str, again: bool, tell: Tell
) -> ArchivedDay:
    place = Place.at(config.place)
    async with MessageStore.open(config.url, pool_size=3, application_name=APPLICATION) as store:
        tell(Progress(Step.CLAIMING))
        async with store.transaction() as connection:
            claimed = await claims.claim(
                connection,
                table,
                day,
                run_id=await _mint_run_id(connection, place, table, day),
                holder=config.holder,
                lease_seconds=config.lease_seconds,
                again=again,
            )
        try:
            async with kept(store, claimed, config.lease_seconds) as lease:
                return await _Run(spark, config, store, place, claimed, lease, tell).archive()
        except RunLostError:
            raise
        except BaseException as error:
            with suppress(MessageCenterError):
                async with store.transaction() as connection:
                    await claims.fail(connection, claimed, _cause(error))
            raise


async def _mint_run_id(connection: Connection, place: Place, table: str, day: date) -> UUID:
    """Return an id behind those of all runs of the day before: readers go by the last one, whoever's clock named it.

    Those that the store knows, and those that are there: a store that was promoted may have lost some.
    """
    noted = [run.run_id for run in await list_noted_runs(connection, table, day, limit=1)]
    before = max([*noted, *await asyncio.to_thread(list_runs, place, table, day)], default=UUID(int=0))
    now_us = max(time.time_ns() // 1_000, ids.time_us_of(before.bytes) + 1_000)
    return UUID(bytes=ids.to_bytes(ids.mint_run(now_us)))


class _Run:
    """One run, from its claim to its mark."""

    def __init__(  # noqa: PLR0917 - made in one place, above
        self,
        spark: SparkSession,
        config: ArchiveConfig,
        store: MessageStore,
        place: Place,
        claimed: ArchiveRun,
        lease: Lease,
        tell: Tell,
    ) -> None:
        self._spark = spark
        self._config = config
        self._store = store
        self._place = place
        self._claimed = claimed
        self._lease = lease
        self._tell = tell

    async def archive(self) -> ArchivedDay:
        """Close, write, list and mark the day."""
        closed = await self._close()
        inputs, plans = await self._plan(closed)
        written = await self._lease.during(self._write(inputs, plans))
        digests = _digests(closed, inputs, written)
        manifest = self._manifest(closed, digests, written)
        self._tell(Progress(Step.MARKING, len(plans), len(plans), manifest.rows))
        path = await self._lease.during(asyncio.to_thread(self._list, manifest, inputs.directory))
        async with self._store.transaction() as connection:
            await claims.mark_verified(connection, self._claimed, _verified(manifest, digests, self._place.below(path)))
        return ArchivedDay(manifest, path)

    async def _close(self) -> ClosedDay:
        self._tell(Progress(Step.CLOSING))
        async with self._store.connection() as connection:
            closed = await self._lease.during(close_day(connection, self._claimed))
        if self._config.replica_url is not None:
            self._tell(Progress(Step.WAITING))
            replica_url = self._config.replica_url
            async with MessageStore.open(replica_url, pool_size=1) as replica, replica.connection() as connection:
                waiting = wait_for_replay(
                    connection, self._claimed, closed, wait_seconds=self._config.replay_seconds_max
                )
                await self._lease.during(waiting)
        return closed

    async def _plan(self, closed: ClosedDay) -> tuple[PartInputs, list[PartPlan]]:
        run = self._claimed
        async with self._store.connection() as connection:
            measured = await measure_ranges(connection, run.table, closed.partition, closed.ranges)
            found = await (await connection.execute("SELECT current_setting('server_version_num')::integer")).fetchone()
        assert found is not None, "it is one row"
        is_partitioned = SOURCES[run.table].queue_column is not None
        inputs = PartInputs(
            url=self._config.read_url,
            place_url=self._place.url,
            directory=run_directory(run.table, run.day, run.run_id),
            table=run.table,
            rows_from=closed.partition,
            conditions=() if is_partitioned else _of_day(run),
            digest_kind=kind_for(found[0]),
        )
        await asyncio.to_thread(self._place.make_directory, inputs.directory)
        return inputs, plan_parts(measured, self._config.file_bytes)

    async def _write(self, inputs: PartInputs, plans: Sequence[PartPlan]) -> list[WrittenPart]:
        """Have Spark write all parts, and tell how far it is."""
        if not plans:
            return []
        group = str(self._claimed.run_id)
        working = asyncio.ensure_future(asyncio.to_thread(self._write_in_thread, group, inputs, plans))
        try:
            while not working.done():
                # Java may take its time to answer: the lease is renewed meanwhile.
                done = await asyncio.to_thread(self._count_done, group)
                self._tell(Progress(Step.WRITING, done, len(plans), sum(plan.rows_about for plan in plans)))
                await asyncio.wait([working], timeout=_LOOK_SECONDS)
            return await working
        finally:
            if not working.done():
                # With the job that the thread may be about to begin, for which Python's Spark has no word of its own.
                self._spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(group)  # noqa: SLF001
                await asyncio.wait([working], timeout=_END_SECONDS)
            if working.done() and not working.cancelled():
                working.exception()

    def _write_in_thread(self, group: str, inputs: PartInputs, plans: Sequence[PartPlan]) -> list[WrittenPart]:
        context = self._spark.sparkContext
        context.setJobGroup(group, f"archive {inputs.table} of {self._claimed.day}", interruptOnCancel=True)
        with task_errors():
            return context.parallelize(plans, len(plans)).map(partial(write_part, inputs)).collect()

    def _count_done(self, group: str) -> int:
        """Return how many tasks of the run's job are done."""
        tracker = self._spark.sparkContext.statusTracker()
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
        check_there(self._place, manifest.files)
        return write_manifest(self._place, manifest, directory)

    def _manifest(
        self, closed: ClosedDay, digests: tuple[QueueDigest, ...], written: Sequence[WrittenPart]
    ) -> Manifest:
        run = self._claimed
        system_identifier, _, timeline = closed.timeline.partition("/")
        base = None
        if run.base_run_id is not None:
            base = read_manifest(self._place, run_directory(run.table, run.day, run.base_run_id))
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
