"""Reading the log as it goes on: offsets that Spark keeps in its checkpoint, and as much in a batch as it may be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from msgbroker.contract.errors import OffsetGoneError, OtherHistoryError
from msgdb import names
from spark_etl.source.admission import Waiting, admit
from spark_etl.source.batch import check_starts
from spark_etl.source.contract import SOURCES
from spark_etl.source.options import EARLIEST, LATEST, StreamOptions
from spark_etl.source.pages import Connection, connect
from spark_etl.source.planning import OffsetRange, ReadTask, tasks_of
from spark_etl.source.reading import TaskReader
from spark_etl.source.replicas import wait_until_replayed
from spark_etl.source.survey import QueueEnds, find_history_id, offsets_at, queue_ends, row_sizes

_HISTORY: Final = "history"
_QUEUES: Final = "queues"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The messages of all queues from an offset on. On the driver it lives as long as the stream; tasks have a copy.

    An offset, as Spark keeps it: `{"history": marker of the store's history, "queues": {queue: the next offset}}`. A
    queue that is not in it is new, and begins at 0.
    """

    def __init__(self, options: StreamOptions, column_names: tuple[str, ...]) -> None:
        self._options = options
        self._tasks = TaskReader(options.store.reading_url, SOURCES[names.MESSAGE], column_names)
        self._target: dict[int, int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a new stream begins."""
        start = self._options.start
        with connect(self._options.store.url) as connection:
            history_id, ends = find_history_id(connection), queue_ends(connection)
            if start == LATEST:
                return _offset(history_id, {queue_id: each.end for queue_id, each in ends.items()})
            if start == EARLIEST:
                return _offset(history_id, {queue_id: each.start for queue_id, each in ends.items()})
            assert isinstance(start, datetime), "it is a word or a time"
            return _offset(history_id, offsets_at(connection, dict(ends), start))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the bound on a batch's messages. The one on its bytes holds wherever this one does."""
        return ReadMaxRows(self._options.messages_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the batch from *start* on ends.

        Raises OffsetGoneError where the log begins behind *start*, and OtherHistoryError after a promotion.
        """
        with connect(self._options.store.url) as connection:
            waiting = self._waiting(connection, start)
            if isinstance(limit, ReadAllAvailable):
                return _offset(start[_HISTORY], {queue_id: end for queue_id, (_, end) in waiting.items()})
            messages_max = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.messages_max
            # Of what may come next: what is far behind it says nothing of this batch.
            near = {queue_id: (first, min(end, first + messages_max)) for queue_id, (first, end) in waiting.items()}
            sizes = row_sizes(connection, near)
        sized = {queue_id: Waiting(*ends, sizes.get(queue_id, 1.0)) for queue_id, ends in waiting.items()}
        return _offset(start[_HISTORY], admit(sized, messages_max, self._options.bytes_max))

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the log ends now: how far the stream is behind is shown by that."""
        with connect(self._options.store.url) as connection:
            ends = queue_ends(connection)
            return _offset(find_history_id(connection), {queue_id: each.end for queue_id, each in ends.items()})

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember where the log ends: the stream stops there."""
        with connect(self._options.store.url) as connection:
            self._target = {queue_id: each.end for queue_id, each in queue_ends(connection).items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of the batch; after a restart it may be one that was begun before."""
        store = self._options.store
        with connect(store.url) as connection:
            ranges = _between(start, end)
            if ranges:
                _check(find_history_id(connection), queue_ends(connection), start, ranges)
            sizes = row_sizes(connection, ranges)
            if ranges and store.replica_url is not None:
                wait_until_replayed(connection, store.replica_url, store.replica_wait_seconds)
        found = [OffsetRange(queue_id, *ends, sizes.get(queue_id, 1.0)) for queue_id, ends in sorted(ranges.items())]
        return list(tasks_of(found, store.partition_bytes, is_gapless=True))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give what the task reads."""
        assert isinstance(partition, ReadTask), "what `partitions` has made"
        return self._tasks.read(partition)

    def _waiting(self, connection: Connection, start: Mapping[str, Any]) -> dict[int, tuple[int, int]]:
        """Return what each queue has from *start* on; with a target, what it had then."""
        ends = queue_ends(connection)
        begun = {int(queue_id): offset for queue_id, offset in start[_QUEUES].items()}
        known = ends if self._target is None else self._target.keys() & ends.keys()
        waiting = {
            queue_id: (begun.get(queue_id, 0), ends[queue_id].end)
            for queue_id in {*known} | (begun.keys() & ends.keys())
        }
        _check(find_history_id(connection), ends, start, waiting)
        if self._target is None:
            return waiting
        return {
            queue_id: (first, max(first, min(end, self._target.get(queue_id, first))))
            for queue_id, (first, end) in waiting.items()
        }


def _check(
    history_id: str, ends: Mapping[int, QueueEnds], start: Mapping[str, Any], wanted: Mapping[int, tuple[int, int]]
) -> None:
    """Raise unless the offsets of *start* mean what they meant, and are there."""
    if history_id != start[_HISTORY]:
        raise OtherHistoryError(history_id, start[_HISTORY])
    check_starts(ends, wanted)
    for queue_id, (first, _) in wanted.items():
        if queue_id in ends and first > ends[queue_id].end:
            raise OffsetGoneError(queue_id, first, *ends[queue_id])


def _between(start: Mapping[str, Any], end: Mapping[str, Any]) -> dict[int, tuple[int, int]]:
    """Return what is between two offsets, of the queues that have something."""
    begun: Mapping[str, int] = start[_QUEUES]
    ends = {int(queue_id): (begun.get(queue_id, 0), next_offset) for queue_id, next_offset in end[_QUEUES].items()}
    return {queue_id: (first, last) for queue_id, (first, last) in ends.items() if first < last}


def _offset(history_id: str, queues: Mapping[int, int]) -> dict[str, Any]:
    """Return an offset as Spark keeps it: JSON knows no numbers as keys."""
    return {_HISTORY: history_id, _QUEUES: {str(queue_id): offset for queue_id, offset in sorted(queues.items())}}
