"""How the ranges of a table become tasks of about the same number of bytes. Pure.

A range that is large becomes several tasks, and small ones share a task, in their order: a thousand queues with a few
messages each are no thousand tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Final

from pyspark.sql.datasource import InputPartition

PARTITION_BYTES: Final = 128 << 20

Interval = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of a queue from *first* on, less than *end*; where the table has no queues, ids, and queue 0."""

    queue_id: int
    first: int
    end: int
    row_bytes: float
    """About what a row of it has."""
    stored_within: Interval | None = None
    """The times of all its rows, where they are known: PostgreSQL leaves out the days that they are not of."""

    @property
    def bytes(self) -> float:
        """About what all of it has."""
        return (self.end - self.first) * self.row_bytes

    def cut(self, first: int | None, end: int | None) -> OffsetRange:
        """Return what of it is within these offsets; nothing may be left of it."""
        low = self.first if first is None else max(first, self.first)
        return replace(self, first=low, end=max(low, self.end if end is None else min(end, self.end)))


@dataclass(frozen=True)
class ReadTask(InputPartition):
    """What one task of Spark reads: ranges, or a whole table in the order of its key where there are none."""

    ranges: tuple[OffsetRange, ...] | None
    conditions: tuple[str, ...] = ()
    is_gapless: bool = False
    """Whether each range has a row for each of its offsets: fewer mean that a day was dropped meanwhile."""


def scaled(ranges: Sequence[OffsetRange], table_bytes: int) -> list[OffsetRange]:
    """Return *ranges* of a table with larger rows, where a sample has made them out to be less than the table is.

    Never with smaller ones: what a table has is compressed, and what is read of it is not.
    """
    sampled = sum(each.bytes for each in ranges)
    factor = max(1.0, table_bytes / sampled) if sampled else 1.0
    return [replace(each, row_bytes=each.row_bytes * factor) for each in ranges]


def tasks_of(
    ranges: Iterable[OffsetRange], partition_bytes: int, *, conditions: tuple[str, ...] = (), is_gapless: bool = False
) -> list[ReadTask]:
    """Return tasks that read *ranges* between them, each about *partition_bytes*; none where there is nothing."""
    tasks: list[ReadTask] = []
    gathered: list[OffsetRange] = []
    gathered_bytes = 0.0

    def finish() -> None:
        nonlocal gathered_bytes
        if gathered:
            tasks.append(ReadTask(tuple(gathered), conditions, is_gapless))
            gathered.clear()
            gathered_bytes = 0.0

    for piece in (piece for each in ranges for piece in _pieces(each, partition_bytes)):
        if gathered_bytes + piece.bytes > partition_bytes:
            finish()
        gathered.append(piece)
        gathered_bytes += piece.bytes
    finish()
    return tasks


def _pieces(whole: OffsetRange, partition_bytes: int) -> list[OffsetRange]:
    """Return *whole* in as few equal pieces as are each about *partition_bytes* at most."""
    rows = whole.end - whole.first
    if rows <= 0:
        return []
    rows_max = max(1, int(partition_bytes / max(whole.row_bytes, 1.0)))
    count = -(-rows // rows_max)
    edges = [whole.first + rows * place // count for place in range(count + 1)]
    return [replace(whole, first=first, end=end) for first, end in pairwise(edges)]
