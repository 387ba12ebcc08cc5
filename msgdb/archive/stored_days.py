"""The days that are there, of any table that is kept by days: as partitions, or as rows of one table."""

from __future__ import annotations

from datetime import date
from typing import Final, NamedTuple

from psycopg import sql

from msgdb.day_tables import DayTable
from msgdb.log.partitions import DayPartition, day_bounds, list_partitions
from msgdb.postgres.connections import Connection

# Index: of the time column, one probe for each day that has rows.
_LIST_DAYS: Final = """
WITH RECURSIVE found AS (
    SELECT (SELECT min({time}) FROM {table} WHERE {time} < %(end)s) AS at
    UNION ALL
    SELECT (
        SELECT min({time}) FROM {table}
        WHERE {time} >= date_trunc('day', f.at, 'UTC') + interval '24 hours' AND {time} < %(end)s
    )
    FROM found f WHERE f.at IS NOT NULL
)
SELECT (at AT TIME ZONE 'UTC')::date FROM found WHERE at IS NOT NULL ORDER BY at
"""


class StoredDay(NamedTuple):
    """A day of a table that is there."""

    table: DayTable
    day: date
    partition: DayPartition | None
    """What has its rows; None: they lie among those of other days."""

    @property
    def name(self) -> str:
        """Return what it is called in reports and alarms."""
        return f"{self.table.name} {self.day}" if self.partition is None else self.partition.name


async def list_stored_days(conn: Connection, table: DayTable, before: date) -> list[StoredDay]:
    """Return the days of *table* before a day, in their order; of partitions those that are detached, too."""
    if table.is_partitioned:
        partitions = await list_partitions(conn, table.name)
        return [StoredDay(table, each.day, each) for each in partitions if each.day < before]
    end, _ = day_bounds(before)
    statement = sql.SQL(_LIST_DAYS).format(table=sql.Identifier(table.name), time=sql.Identifier(table.time_column))
    rows = await (await conn.execute(statement, {"end": end})).fetchall()
    return [StoredDay(table, row[0], None) for row in rows]
