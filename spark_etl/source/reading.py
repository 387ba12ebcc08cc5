"""What a task does, on an executor: reads its part of a table, on a connection of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructType

from msgbroker.contract.errors import InvalidSettingError, OffsetGoneError
from msgdb import names
from spark_etl.source.contract import SourceTable, spark_schema
from spark_etl.source.filters import Bounds
from spark_etl.source.pages import Connection, connect, fetch_rows, read_keys, read_range
from spark_etl.source.planning import OffsetRange, ReadTask
from spark_etl.source.survey import times_conditions

# By the primary key. It is raised before anything of a day is dropped.
_START: Final = "SELECT start_offset FROM queue WHERE queue_id = {queue_id}"


@dataclass(frozen=True, slots=True)
class TaskReader:
    """What all tasks of a read have in common. It goes to the executors with the url in it, and is shown nowhere."""

    url: str = field(repr=False)
    source: SourceTable
    column_names: tuple[str, ...]

    def read(self, task: ReadTask) -> Iterator[pa.RecordBatch]:
        """Give the task's rows.

        Raises OffsetGoneError where a day was dropped after the read was planned: fewer rows are no answer.
        """
        with connect(self.url) as connection:
            if task.ranges is None:
                yield from read_keys(
                    connection, self.source, column_names=self.column_names, conditions=task.conditions
                )
                return
            for each in task.ranges:
                yield from self._read_range(connection, task, each)

    def _read_range(self, connection: Connection, task: ReadTask, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        count = 0
        for batch in read_range(
            connection,
            self.source,
            self.source.name,
            wanted.queue_id,
            wanted.first,
            wanted.end,
            column_names=self.column_names,
            conditions=[*self._of_days(wanted), *task.conditions],
        ):
            count += batch.num_rows
            yield batch
        if count == wanted.end - wanted.first or self.source.name != names.MESSAGE:
            return
        if task.is_gapless:
            raise OffsetGoneError(wanted.queue_id, wanted.first, wanted.end - count, wanted.end)
        _check_start(connection, wanted)

    def _of_days(self, wanted: OffsetRange) -> Sequence[str]:
        if wanted.stored_within is None or self.source.day_column is None:
            return ()
        return times_conditions(self.source.day_column, Bounds(*wanted.stored_within))


def _check_start(connection: Connection, wanted: OffsetRange) -> None:
    """Raise OffsetGoneError where what filters have left out may have been dropped instead."""
    found = fetch_rows(connection, _START.format(queue_id=int(wanted.queue_id)))
    start = found[0]["start_offset"] if found else wanted.end
    if start > wanted.first:
        raise OffsetGoneError(wanted.queue_id, wanted.first, start, max(start, wanted.end))


def columns_of(source: SourceTable, schema: StructType) -> tuple[str, ...]:
    """Return the columns that *schema* names, all of which must be as the contract has them.

    A schema with fewer columns is how a job reads fewer of them: Spark tells a source in Python of no other way.
    """
    known = {each.name: each for each in spark_schema(source)}
    for given in schema:
        if given.name not in known:
            raise InvalidSettingError("schema", f"has {given.name!r}, and {source.name} has no such column")
        wanted = known[given.name].dataType
        if given.dataType != wanted or not given.nullable:
            kind = f"{given.dataType.simpleString()}{'' if given.nullable else ' not null'}"
            problem = f"has {given.name} as {kind}; in {source.name} it is {wanted.simpleString()}"
            raise InvalidSettingError("schema", problem)
    return tuple(schema.fieldNames())
