"""Reading a table, or a part of the log, in one go: planned on the driver, read by tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from msgbroker.contract.errors import OffsetGoneError, OtherHistoryError
from msgdb import names
from msgdb.day_tables import DAY_TABLES
from spark_etl.source.filters import Bounds, Pushed, push
from spark_etl.source.options import BatchOptions, database_url, days_of
from spark_etl.source.pages import Connection, connect
from spark_etl.source.pinned import PinnedBounds
from spark_etl.source.planning import OffsetRange, ReadTask, tasks_of
from spark_etl.source.reading import TaskReader
from spark_etl.source.replicas import wait_until_replayed
from spark_etl.source.survey import (
    QueueEnds,
    days_within,
    find_history_id,
    queue_ends,
    range_of_ids,
    ranges_of_log,
    times_conditions,
)


class BatchReader(DataSourceReader):
    """Plans the tasks of a read and, on executors, carries them out. Planned twice, it may differ: see `pin_bounds`."""

    def __init__(self, options: BatchOptions, column_names: tuple[str, ...]) -> None:
        self._options = options
        self._tasks = TaskReader(options.store.reading_url, options.source, column_names)
        self._pushed = Pushed()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take the filters that PostgreSQL evaluates as Spark would, and return the others."""
        self._pushed, left = push(self._options.source, filters)
        return left

    def partitions(self) -> list[InputPartition]:
        """Return the tasks: planned by what the primary has, and read on the replica once that has it, too."""
        store = self._options.store
        with connect(store.url) as connection:
            tasks = self._plan(connection)
            if store.replica_url is not None:
                wait_until_replayed(connection, store.replica_url, store.replica_wait_seconds)
        return list(tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give what the task reads. Without any task there is one all the same, of nothing."""
        return self._tasks.read(partition) if isinstance(partition, ReadTask) else iter(())

    def _plan(self, connection: Connection) -> list[ReadTask]:
        source, days = self._options.source, self._options.days
        if source.offset_column is None:
            return self._plan_keys(connection)
        conditions = self._pushed.all_conditions
        if source.name == names.MESSAGE:
            ranges = ranges_of_log(connection, self._pushed, days)
            if self._options.pinned is not None:
                ranges = _within_pinned(connection, ranges, self._options.pinned)
        else:
            ranges = range_of_ids(connection, source, self._pushed, days)
            conditions = (*conditions, *self._of_days())
        is_gapless = source.name == names.MESSAGE and not conditions
        return tasks_of(ranges, self._options.store.partition_bytes, conditions=conditions, is_gapless=is_gapless)

    def _plan_keys(self, connection: Connection) -> list[ReadTask]:
        source, conditions = self._options.source, (*self._pushed.all_conditions, *self._of_days())
        if source.day_column is None or not DAY_TABLES[source.name].is_partitioned:
            return [ReadTask(None, conditions)]
        times = self._options.days.within(self._pushed.times)
        days = [Bounds(*day) for day, _ in days_within(connection, source.name, times)]
        return [ReadTask(None, (*conditions, *times_conditions(source.day_column, day))) for day in days]

    def _of_days(self) -> tuple[str, ...]:
        column = self._options.source.day_column
        return () if column is None else tuple(times_conditions(column, self._options.days))


def pin_bounds(url: str | None = None, *, day: str | None = None) -> str:
    """Return the option `bounds` for the messages that there are now, of those days or of all.

    Args:
        url: Of the store; the driver's MSGCENTER_MSGDB_URL by default.
        day: A day or several, as the option `day`.

    Example:
        >>> messages = spark.read.format("msgdb").option("bounds", pin_bounds()).load()  # doctest: +SKIP
    """
    with connect(database_url(url)) as connection:
        history_id = find_history_id(connection)
        if day is None:
            queues: dict[int, tuple[int, int]] = dict(queue_ends(connection))
        else:
            queues = _hulls(ranges_of_log(connection, Pushed(), days_of(day)))
    return PinnedBounds(history_id, queues).text


def _hulls(ranges: Iterable[OffsetRange]) -> dict[int, tuple[int, int]]:
    """Return, for each queue, the offsets from its first range to its last one; they come in their order."""
    hulls: dict[int, tuple[int, int]] = {}
    for each in ranges:
        first, _ = hulls.get(each.queue_id, (each.first, each.end))
        hulls[each.queue_id] = (first, each.end)
    return hulls


def _within_pinned(connection: Connection, ranges: Iterable[OffsetRange], pinned: PinnedBounds) -> list[OffsetRange]:
    """Return what of *ranges* is within the bounds, all of which must still be there."""
    history_id = find_history_id(connection)
    if history_id != pinned.history_id:
        raise OtherHistoryError(history_id, pinned.history_id)
    check_starts(
        queue_ends(connection), {queue_id: ends for queue_id, ends in pinned.queues.items() if ends[0] < ends[1]}
    )
    nothing = (0, 0)
    cut = [each.cut(*pinned.queues.get(each.queue_id, nothing)) for each in ranges]
    return [each for each in cut if each.first < each.end]


def check_starts(ends: Mapping[int, QueueEnds], wanted: Mapping[int, tuple[int, int]]) -> None:
    """Raise OffsetGoneError unless each queue still has its wanted offsets from the first of them on."""
    for queue_id, (first, _) in wanted.items():
        if queue_id in ends and first < ends[queue_id].start:
            raise OffsetGoneError(queue_id, first, *ends[queue_id])
