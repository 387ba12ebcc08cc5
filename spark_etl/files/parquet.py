"""One Parquet file of the archive: written from batches as they come, and read back.

Memory is bounded whatever the bodies: a row group is closed when it has enough bytes, and read back a piece at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_etl.files.manifest import ArchiveFile, Extent, FileRange
from spark_etl.files.places import Place, place_errors

_ROW_GROUP_BYTES: Final = 32 * 1024 * 1024
_READ_ROWS: Final = 4_096
_READ_BYTES: Final = 8 * 1024 * 1024
_FETCH_BYTES: Final = 4 * 1024 * 1024
"""What is fetched at once of a column: few requests where each takes its time."""
_COMPRESSION_LEVEL: Final = 1
"""Bodies are the most of it, and mostly small documents: level 3 makes them no smaller, and level 9 by a tenth at seven
times the price."""
_KEY_MISSES: Final = 0.01
"""How often a look for a key that a file does not have reads it all the same."""
_WITHOUT_STATISTICS: Final = frozenset({"body", "headers", "last_error", "outcome"})
_REPEATED: Final = frozenset(
    {"queue_id", "namespace", "topic", "event_code", "born_host", "publisher_group", "group_id", "group_name", "reason"}
)


@dataclass(frozen=True, slots=True)
class RowNames:
    """Which columns say where a row is: what the facts of a file are gathered by."""

    queue: str | None
    """None where a table has no queues: all is queue 0."""
    offset: str
    time: str


@dataclass(slots=True)
class _Facts:
    """What is gathered of a file while it is written."""

    names: RowNames
    ranges: list[FileRange] = field(default_factory=list)
    topics: set[str] = field(default_factory=set)
    extents: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def add_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            self._add(batch)

    def _add(self, batch: pa.RecordBatch) -> None:
        queues = pa.array([0], pa.int64()) if self.names.queue is None else pc.unique(batch.column(self.names.queue))
        for queue_id in queues.to_pylist():
            rows = batch if len(queues) == 1 else batch.filter(pc.field(self.names.queue) == queue_id)
            self._add_range(queue_id, rows.column(self.names.offset))
        topics = pc.unique(pc.binary_join_element_wise(batch.column("namespace"), batch.column("topic"), "/"))
        self.topics.update(topics.to_pylist())
        for name in ("message_id", "key", self.names.time):
            self._widen(name, batch.column(name))

    def _add_range(self, queue_id: int, offsets: pa.Array) -> None:
        first, last, rows = offsets[0].as_py(), offsets[-1].as_py(), len(offsets)
        if self.ranges and self.ranges[-1].queue_id == queue_id:
            before = self.ranges.pop()
            first, rows = before.first_offset, rows + before.rows
        self.ranges.append(FileRange(queue_id, first, last, rows))

    def _widen(self, name: str, values: pa.Array) -> None:
        found = pc.min_max(values)
        smallest, largest = found["min"].as_py(), found["max"].as_py()
        if smallest is None:
            return
        before = self.extents.get(name, (smallest, largest))
        self.extents[name] = (min(before[0], smallest), max(before[1], largest))

    def extent(self, name: str) -> Extent:
        if name not in self.extents:
            return Extent(None, None)
        return Extent(*(each if isinstance(each, str) else each.isoformat() for each in self.extents[name]))


class _HashedFile:
    """A file that counts and hashes what is written, so that its checksum costs no second look at it."""

    def __init__(self, inner: pa.NativeFile) -> None:
        self._inner = inner
        self._sha256 = hashlib.sha256()
        self.byte_count = 0

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._sha256.update(view)
        self._inner.write(data)
        self.byte_count += view.nbytes
        return view.nbytes

    def flush(self) -> None:
        self._inner.flush()

    def close(self) -> None:
        self._inner.close()

    @property
    def closed(self) -> bool:
        return bool(self._inner.closed)

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()


def write_file(
    place: Place, path: str, batches: Iterator[pa.RecordBatch], *, schema: pa.Schema, names: RowNames
) -> ArchiveFile:
    """Write the rows to a new file below *place*, and return what is in it. It is there for good once it is settled.

    Raises ArchivePlaceError where it cannot be written.
    """
    facts = _Facts(names)
    groups = _row_groups(batches)
    first = next(groups, [])
    options = _writer_options(schema, names, sum(batch.num_rows for batch in first))
    with place_errors(place):
        file = _HashedFile(place.filesystem.open_output_stream(place.below(path)))
        with (
            pa.PythonFile(file, mode="w") as sink,
            pq.ParquetWriter(sink, schema, **options) as writer,
        ):
            for group in chain([first] if first else [], groups):
                facts.add_all(group)
                table = pa.Table.from_batches(group, schema)
                writer.write_table(table, row_group_size=max(1, table.num_rows))
                # Else it would be kept while the next one is gathered.
                group.clear()
                del table
        file.close()
    return ArchiveFile(
        path=path,
        bytes=file.byte_count,
        sha256=file.sha256,
        rows=sum(each.rows for each in facts.ranges),
        ranges=tuple(facts.ranges),
        topics=tuple(sorted(facts.topics)),
        message_id=facts.extent("message_id"),
        key=facts.extent("key"),
        time=facts.extent(names.time),
    )


def read_back(place: Place, path: str) -> Iterator[pa.RecordBatch]:
    """Return the rows of a file in their order, a piece at a time."""
    with (
        place_errors(place),
        place.filesystem.open_input_file(place.below(path)) as source,
        # By default all that was read of the file stays in memory until it is closed.
        pq.ParquetFile(source, pre_buffer=False, buffer_size=_FETCH_BYTES) as file,
    ):
        # One by one: a batch of as many rows as asked for would be gathered from all of those that have them.
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            rows = group.num_rows * _READ_BYTES // max(1, group.total_byte_size)
            yield from file.iter_batches(
                batch_size=min(max(1, rows), _READ_ROWS), row_groups=[number], use_threads=False
            )


def checksum(place: Place, path: str) -> tuple[int, str]:
    """Return how many bytes a file has, and their SHA-256. Raises FileNotFoundError."""
    sha256, byte_count = hashlib.sha256(), 0
    with place.filesystem.open_input_stream(place.below(path)) as stream:
        while piece := stream.read(1 << 20):
            sha256.update(piece)
            byte_count += len(piece)
    return byte_count, sha256.hexdigest()


def _row_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    group: list[pa.RecordBatch] = []
    group_bytes = 0
    for batch in batches:
        group.append(batch)
        group_bytes += batch.nbytes
        if group_bytes >= _ROW_GROUP_BYTES:
            yield group
            group, group_bytes = [], 0
    if group:
        yield group


def _writer_options(schema: pa.Schema, names: RowNames, row_group_rows: int) -> dict[str, Any]:
    """Return how a file is written whose row groups have so many rows, about: each has a bloom filter of its own."""
    present: Sequence[str] = schema.names
    sorted_by = [name for name in ("namespace", "topic", names.queue, names.offset) if name is not None]
    return {
        "compression": "zstd",
        "compression_level": _COMPRESSION_LEVEL,
        "use_dictionary": [name for name in present if name in _REPEATED],
        "write_statistics": [name for name in present if name not in _WITHOUT_STATISTICS],
        "bloom_filter_options": {"key": {"ndv": max(1, row_group_rows), "fpp": _KEY_MISSES}},
        "sorting_columns": pq.SortingColumn.from_ordering(
            schema, [(name, "ascending") for name in sorted_by if names.queue is not None or name == names.offset]
        ),
    }
