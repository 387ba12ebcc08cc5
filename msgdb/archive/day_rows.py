"""What the store has of a day: whether the day is over, and where its rows are.

A day is a day in UTC, by the database's clock, whatever the session's time zone is. A partition is always read by its
own name: once its detach has begun, the parent does not show it any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import Final

from psycopg import errors, sql

from msgbroker.contract.errors import DayStillOpenError, InvalidSettingError, ThingNotFoundError
from msgdb import names
from msgdb.day_tables import ARCHIVABLE_NAMES, DAY_TABLES, DayTable
from msgdb.log.partitions import day_bounds, today
from msgdb.postgres.connections import Connection

_IS_TABLE: Final = "SELECT to_regclass(%s) IS NOT NULL"

_HAS_ANY_ROWS: Final = "SELECT EXISTS (SELECT 1 FROM {table})"
# Index: the one on the time.
_HAS_ROWS: Final = "SELECT EXISTS (SELECT 1 FROM {table} WHERE {time} >= %(first)s AND {time} < %(end)s)"


def get_archivable(table: str) -> DayTable:
    """Return what is known of a table whose days may be archived. Raises InvalidSettingError."""
    entry = DAY_TABLES.get(table)
    if entry is None or not entry.is_archivable:
        raise InvalidSettingError("table", f"must be one whose days are archived: {', '.join(ARCHIVABLE_NAMES)}")
    return entry


def table_of_day(table: DayTable, day: date) -> str:
    """Return the table that has the rows of a day, attached or not."""
    return names.partition_name(table.name, f"{day:%Y%m%d}") if table.is_partitioned else table.name


async def check_over(conn: Connection, table: DayTable, day: date) -> None:
    """Raise DayStillOpenError for a day that is not over by the database's clock."""
    open_day = await today(conn)
    if day >= open_day:
        raise DayStillOpenError(table.name, f"{day}", f"it is {open_day} by the database's clock (UTC)")


async def is_stored(conn: Connection, table: DayTable, day: date) -> bool:
    """Tell whether the store has the day: its partition, or, of a table that is not partitioned, a row."""
    if not table.is_partitioned:
        return await has_rows(conn, table, day)
    return await (await conn.execute(_IS_TABLE, (table_of_day(table, day),))).fetchone() == (True,)


async def has_rows(conn: Connection, table: DayTable, day: date) -> bool:
    """Tell whether a day that is stored has any row: its partition may have none."""
    first, end = day_bounds(day)
    statement = sql.SQL(_HAS_ANY_ROWS if table.is_partitioned else _HAS_ROWS).format(
        table=sql.Identifier(table_of_day(table, day)), time=sql.Identifier(table.time_column)
    )
    return await (await conn.execute(statement, {"first": first, "end": end})).fetchone() == (True,)


@contextmanager
def day_is_there(table: str, day: date | str) -> Iterator[None]:
    """Raise ThingNotFoundError where the day goes while its rows are looked at.

    Where no archive is required it may do so at any time: whoever has just asked knows how it was then.
    """
    try:
        yield
    except errors.UndefinedTable as error:
        raise ThingNotFoundError(f"day of {table}", f"{day}") from error
