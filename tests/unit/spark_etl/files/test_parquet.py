"""Files of the archive, written and read back: how much of one is in memory."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from spark_etl.files.parquet import RowNames, read_back, write_file
from spark_etl.files.places import Place

_MIB = 1 << 20
_SCHEMA = pa.schema(
    [
        ("queue_id", pa.int64()),
        ("queue_offset", pa.int64()),
        ("stored_at", pa.timestamp("us", tz="UTC")),
        ("message_id", pa.string()),
        ("namespace", pa.string()),
        ("topic", pa.string()),
        ("key", pa.string()),
        ("body", pa.binary()),
    ]
)


def batches(count: int, rows: int, body_bytes: int) -> Iterator[pa.RecordBatch]:
    bodies = pa.array([secrets.token_bytes(body_bytes) for _ in range(rows)], pa.binary())
    for first in range(0, count * rows, rows):
        offsets = pa.array(range(first, first + rows), pa.int64())
        texts = [pa.array([text] * rows) for text in ("id", "default", "TP_TRADE")]
        texts.append(pa.array([f"order-{offset}" for offset in range(first, first + rows)]))
        times = offsets.cast(pa.timestamp("us", tz="UTC"))
        yield pa.RecordBatch.from_arrays([pa.array([1] * rows), offsets, times, *texts, bodies], schema=_SCHEMA)


def test_a_file_is_read_back_with_a_part_of_it_in_memory(tmp_path: Path) -> None:
    place, names = Place.at(str(tmp_path)), RowNames("queue_id", "queue_offset", "stored_at")
    written = write_file(place, "part", batches(80, 256, 8_192), schema=_SCHEMA, names=names)
    before = pa.total_allocated_bytes()

    held = [pa.total_allocated_bytes() - before for _ in read_back(place, "part")]

    assert written.bytes > 150 * _MIB
    assert max(held) < 60 * _MIB


def test_the_bloom_filter_of_a_row_group_is_for_the_keys_of_that_group(tmp_path: Path) -> None:
    place, names = Place.at(str(tmp_path)), RowNames("queue_id", "queue_offset", "stored_at")
    write_file(place, "part", batches(20, 1_024, 8_192), schema=_SCHEMA, names=names)

    with pq.ParquetFile(place.below("part")) as file:
        groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        filters = [group.column(_SCHEMA.get_field_index("key")).bloom_filter_length for group in groups]

    assert len(groups) >= 4
    # About ten bits a key, rounded up to a power of two.
    assert all(group.num_rows < length < 4 * group.num_rows for group, length in zip(groups, filters, strict=True))


def test_a_file_without_rows_can_be_read(tmp_path: Path) -> None:
    place, names = Place.at(str(tmp_path)), RowNames("queue_id", "queue_offset", "stored_at")

    written = write_file(place, "part", iter(()), schema=_SCHEMA, names=names)

    assert (written.rows, written.ranges) == (0, ())
    assert list(read_back(place, "part")) == []
