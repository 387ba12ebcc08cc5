"""What is read of each of the store's tables, which is a contract: one SELECT with casts, and the schema of it.

Columns are named, never `*`, so that a column added to a table changes no reader. Types of PostgreSQL that Arrow has no
plain type for (uuid, jsonb, int8multirange) are read as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from msgdb import names

_BYTES: Final = pa.binary()
_DAY: Final = pa.date32()
_FLAG: Final = pa.bool_()
_INT2: Final = pa.int16()
_INT4: Final = pa.int32()
_INT8: Final = pa.int64()
_REAL: Final = pa.float32()
_TEXT: Final = pa.string()
_TIME: Final = pa.timestamp("us", tz="UTC")


class Column(NamedTuple):
    """A column as it is read."""

    name: str
    type: pa.DataType
    cast_from: str | None = None
    """The store's own type of a column that is read as text."""

    @property
    def expression(self) -> str:
        """What the SELECT has of it."""
        return f"{self.name}::text AS {self.name}" if self.cast_from else self.name


@dataclass(frozen=True)
class SourceTable:
    """A table that can be read: its columns, and the order in which its rows are read."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """The table's own columns that rows are read in the order of, from page to page: an index has them."""
    queue_column: str | None = None
    offset_column: str | None = None
    """Where rows are read by ranges: what counts up, within a queue if there is a queue column, else in the table."""
    day_column: str | None = None
    """The time whose day, in UTC, is the row's day."""

    @cached_property
    def schema(self) -> pa.Schema:
        """What the SELECT gives. Any column may be NULL, as far as readers know."""
        return pa.schema([(column.name, column.type) for column in self.columns])

    def schema_of(self, column_names: Iterable[str] | None) -> pa.Schema:
        """Return what the SELECT of these columns gives; of all of them, if none are named."""
        if column_names is None:
            return self.schema
        return pa.schema([self.schema.field(name) for name in column_names])

    @property
    def select(self) -> str:
        """The SELECT, in which `{table}` stands for the table, or for one of its partitions."""
        return self.select_of(self.schema.names)

    def select_of(self, column_names: Iterable[str]) -> str:
        """Return the SELECT of these columns alone, with `{table}` where `select` has it.

        Raises KeyError for a column that is none of the contract.
        """
        return f"SELECT {', '.join(self.column(name).expression for name in column_names)} FROM {{table}}"

    def column(self, name: str) -> Column:
        """Return the column of that name, or raise KeyError."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}


def spark_schema(source: SourceTable) -> StructType:
    """Return the schema of *source* as Spark says it."""
    schema: StructType = from_arrow_schema(source.schema)
    return schema


def _plain(column_type: pa.DataType, *column_names: str) -> tuple[Column, ...]:
    return tuple(Column(name, column_type) for name in column_names)


def _as_text(cast_from: str, *column_names: str) -> tuple[Column, ...]:
    return tuple(Column(name, _TEXT, cast_from) for name in column_names)


# What a message consists of, in the table of messages and in that of dead letters.
_IDENTITY: Final = (
    *_plain(_INT8, "queue_id", "queue_offset"),
    *_plain(_TIME, "stored_at"),
    *_as_text("uuid", "message_id"),
)
_CONTENT: Final = (
    *_plain(_TEXT, "namespace", "topic", "event_code", "key", "ordering_key"),
    *_as_text("jsonb", "headers"),
    *_plain(_BYTES, "body"),
    *_plain(_TIME, "born_at"),
    *_plain(_TEXT, "born_host", "publisher_group"),
    *_plain(_FLAG, "stress"),
)

_MESSAGE: Final = SourceTable(
    names.MESSAGE,
    (*_IDENTITY, *_CONTENT, *_plain(_INT8, "target_group"), *_plain(_INT2, "redrives")),
    key=("queue_id", "queue_offset"),
    queue_column="queue_id",
    offset_column="queue_offset",
    day_column="stored_at",
)
_DEAD_LETTER: Final = SourceTable(
    names.DEAD_LETTER,
    (
        *_plain(_INT8, "id", "group_id"),
        *_plain(_TEXT, "group_name"),
        *_plain(_TIME, "died_at"),
        *_plain(_INT4, "attempts"),
        *_plain(_TEXT, "reason", "last_error"),
        *_IDENTITY,
        *_CONTENT,
        *_plain(_INT2, "redrives"),
    ),
    key=("id",),
    offset_column="id",
    day_column="died_at",
)
_CURSOR: Final = SourceTable(
    names.CURSOR,
    (
        *_plain(_INT8, "group_id"),
        *_plain(_TEXT, "member"),
        *_plain(_INT8, "queue_id", "acked_offset"),
        *_as_text("int8multirange", "acked_ranges"),
        *_as_text("uuid", "owner"),
        *_plain(_INT8, "epoch"),
        *_plain(_TIME, "lease_until"),
        *_plain(_INT8, "reset_offset", "reset_subscription_id", "matching_asked"),
        *_plain(_REAL, "matching_share", "matching_read"),
    ),
    key=("group_id", "member", "queue_id"),
)
_REDELIVERY: Final = SourceTable(
    names.REDELIVERY,
    (
        *_plain(_INT8, "group_id"),
        *_plain(_TEXT, "member"),
        *_plain(_INT8, "queue_id", "queue_offset"),
        *_plain(_TIME, "stored_at"),
        *_plain(_INT4, "attempt"),
        *_plain(_TIME, "due_at"),
        *_plain(_TEXT, "ordering_key", "last_error", "shelved_by"),
    ),
    key=("group_id", "member", "queue_id", "queue_offset"),
)
_PUBLISHER_FRAME: Final = SourceTable(
    names.PUBLISHER_FRAME,
    (
        *_as_text("uuid", "publisher_id"),
        *_plain(_INT8, "sequence"),
        *_plain(_TIME, "stored_at"),
        *_plain(_INT8, "first_sequence"),
        *_plain(_BYTES, "outcome"),
    ),
    key=("publisher_id", "sequence", "stored_at"),
    day_column="stored_at",
)
_QUEUE: Final = SourceTable(
    names.QUEUE,
    (
        *_plain(_INT8, "queue_id", "topic_id"),
        *_plain(_INT4, "generation", "ordinal"),
        *_plain(_INT8, "start_offset"),
        *_plain(_FLAG, "sealed"),
        *_plain(_TIME, "created_at"),
    ),
    key=("queue_id",),
)
_ALARM: Final = SourceTable(
    names.ALARM,
    (
        *_plain(_INT8, "alarm_id"),
        *_as_text("uuid", "broker_id"),
        *_plain(_TEXT, "broker", "kind", "thing", "detail"),
        *_plain(_INT8, "group_id", "topic_id", "queue_id"),
        *_plain(_TIME, "raised_at", "seen_at", "cleared_at"),
    ),
    key=("alarm_id",),
)
_ARCHIVE_DAY: Final = SourceTable(
    names.ARCHIVE_DAY,
    (
        *_plain(_TEXT, "table_name"),
        *_plain(_DAY, "day"),
        *_plain(_TEXT, "state"),
        *_as_text("uuid", "run_id"),
        *_plain(_TEXT, "reason"),
        *_plain(_TIME, "changed_at"),
    ),
    key=("table_name", "day"),
)
_ARCHIVE_RUN: Final = SourceTable(
    names.ARCHIVE_RUN,
    (
        *_as_text("uuid", "run_id"),
        *_plain(_TEXT, "table_name"),
        *_plain(_DAY, "day"),
        *_plain(_TEXT, "state"),
        *_as_text("uuid", "base_run_id"),
        *_plain(_TEXT, "holder"),
        *_plain(_TIME, "begun_at", "lease_until"),
        *_plain(_TEXT, "timeline"),
        *_plain(_TIME, "closed_at"),
        *_plain(_TEXT, "closed_lsn"),
        *_plain(_TIME, "ended_at"),
        *_plain(_TEXT, "failure", "manifest"),
        *_plain(_INT8, "row_count"),
        *_plain(_INT4, "file_count"),
        *_plain(_INT8, "file_bytes"),
    ),
    key=("run_id",),
)
_ACT: Final = SourceTable(
    names.ACT,
    (
        *_plain(_INT8, "act_id"),
        *_plain(_TIME, "at"),
        *_plain(_TEXT, "actor", "action", "thing", "reason"),
        *_as_text("jsonb", "detail"),
        *_plain(_TEXT, "namespace"),
    ),
    key=("act_id",),
)

SOURCES: Final[Mapping[str, SourceTable]] = MappingProxyType(
    {
        source.name: source
        for source in (
            _MESSAGE,
            _DEAD_LETTER,
            _CURSOR,
            _REDELIVERY,
            _PUBLISHER_FRAME,
            _QUEUE,
            _ALARM,
            _ARCHIVE_DAY,
            _ARCHIVE_RUN,
            _ACT,
        )
    }
)
"""All that can be read, by name."""

LEFT_OUT: Final[Mapping[str, str]] = MappingProxyType(
    {
        names.LOG_HISTORY: "a stream's offsets carry what matters of it",
        names.CONFIG_MARK: "it means nothing outside of a broker",
        names.EXPRESSION_FAILURE: "the console's answer, not a record of what happened",
        names.ARCHIVE_POLICY: "one row a table, which commands show",
        names.ARCHIVE_RANGE: "a manifest has it",
        names.JOB: "how far an act is, which commands show; what it did is in the log",
        names.JOB_FAILURE: "goes with its job",
        names.TRACE_EVENT: "a sample of what happened, for whoever looks for one message",
        names.TRIAL: "what somebody tried, which the command shows",
        names.BROKER_REQUEST: "of an hour, and what came of it is an act",
        names.USAGE_MINUTE: "what brokers counted, which commands add up; what it counts is in the log",
        names.USAGE_BROKER: "whether that is all of it",
        names.BACKLOG_MINUTE: "how far groups were behind, which commands show",
        names.REDRIVE: "where a dead letter's message lies since, which the log has under its id",
    }
)
"""The store's other tables, each with why it cannot be read."""
