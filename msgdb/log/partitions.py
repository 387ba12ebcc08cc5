"""The partitions of the tables that have one for each day: made ahead, listed, detached, dropped.

A day is a day in UTC, by the database's clock. The functions that make partitions run in a transaction of their own (or
in the caller's, if it has one); the one that detaches needs a connection in autocommit mode, because DETACH
CONCURRENTLY does.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

from psycopg import sql

from msgdb import names
from msgdb.day_tables import PARTITIONED
from msgdb.locks import PARTITION_LOCK_CLASS
from msgdb.postgres.connections import Connection

DAYS_AHEAD: Final = 3
_LOCK_TIMEOUT: Final = "3s"

# Not now(): that is when the caller's transaction began.
_TODAY: Final = "SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date"

# Brokers that miss the same day at the same time make it one after the other; the second finds it there.
_LOCK_DAY: Final = """
SELECT set_config('lock_timeout', %s, true), pg_advisory_xact_lock(%s, %s)
"""

_EXISTS: Final = "SELECT to_regclass(%s) IS NOT NULL"

# LIKE and then ATTACH: `PARTITION OF` takes an ACCESS EXCLUSIVE lock on the parent and waits behind any open reader,
# with every insert waiting behind it. ATTACH takes SHARE UPDATE EXCLUSIVE, which neither readers nor inserts mind.
# There are no rows yet and no DEFAULT partition, so it has nothing to scan and needs no CHECK to spare it the scan.
_CREATE: Final = "CREATE TABLE {partition} (LIKE {parent} INCLUDING ALL)"
_ATTACH: Final = "ALTER TABLE {parent} ATTACH PARTITION {partition} FOR VALUES FROM ({first}) TO ({last})"

# Day partitions in any state: attached, pending (a detach was interrupted), or detached and not dropped yet.
_LIST: Final = r"""
SELECT p.relname, coalesce(i.inhdetachpending, false), i.inhrelid IS NOT NULL
FROM pg_class p
LEFT JOIN pg_inherits i ON i.inhrelid = p.oid
WHERE p.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass(%(parent)s))
  AND p.relkind = 'r' AND p.relname ~ ('^' || %(parent)s || '_p[0-9]{8}$')
ORDER BY p.relname
"""

# CONCURRENTLY: waits for those who read the table now, and blocks nobody meanwhile.
_DETACH: Final = "ALTER TABLE {parent} DETACH PARTITION {partition} CONCURRENTLY"
_FINALIZE: Final = "ALTER TABLE {parent} DETACH PARTITION {partition} FINALIZE"
_LOCK_DETACHED: Final = "LOCK TABLE {partition} IN ACCESS EXCLUSIVE MODE"
_DROP: Final = "DROP TABLE {partition}"


class DayPartition(NamedTuple):
    """The partition of one table that holds one day."""

    table: str
    name: str
    day: date
    is_attached: bool
    is_detach_pending: bool
    """Whether its detach was interrupted: nobody reads it any more, and nothing else can be detached before it is
    finished."""


def day_bounds(day: date) -> tuple[datetime, datetime]:
    """Return the first moment of the day and of the next."""
    first = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return first, first + timedelta(days=1)


async def today(conn: Connection) -> date:
    """Return which day it is by the database's clock, at this moment: the one that is open."""
    row = await (await conn.execute(_TODAY)).fetchone()
    assert row is not None, "it is one row"
    day = row[0]
    assert isinstance(day, date), "it is a date"
    return day


async def ensure_for(conn: Connection, day: date) -> list[str]:
    """Make the day's partitions where they are missing and return the names of those made. Any number may try at once.

    Not to be called inside an append's transaction: it has failed already, and its locks come later in the order.
    """
    async with conn.transaction():
        await conn.execute(_LOCK_DAY, (_LOCK_TIMEOUT, PARTITION_LOCK_CLASS, int(day.strftime("%Y%m%d"))))
        return [
            partition
            for table in PARTITIONED
            if (partition := await _ensure_partition(conn, table.name, day)) is not None
        ]


async def ensure_ahead(conn: Connection, days_ahead: int = DAYS_AHEAD) -> list[str]:
    """Make the partitions of today and the days to come where they are missing; return the names of those made."""
    first_day = await today(conn)
    made: list[str] = []
    for days in range(days_ahead + 1):
        made += await ensure_for(conn, first_day + timedelta(days=days))
    return made


async def list_partitions(conn: Connection, table: str) -> list[DayPartition]:
    """Return *table*'s days in order, leftovers of interrupted drops included."""
    rows = await (await conn.execute(_LIST, {"parent": table})).fetchall()
    return [
        DayPartition(table, name, day, attached, pending)
        for name, pending, attached in rows
        if (day := _find_day(name)) is not None
    ]


async def list_misnamed(conn: Connection, table: str) -> list[str]:
    """Return what is named like a day of *table* that is in no calendar: somebody else has made it."""
    rows = await (await conn.execute(_LIST, {"parent": table})).fetchall()
    return [name for name, _, _ in rows if _find_day(name) is None]


async def detach_partition(conn: Connection, partition: DayPartition) -> None:
    """Take the day out of its table; continues where an interrupted detach left off."""
    parts = {"parent": sql.Identifier(partition.table), "partition": sql.Identifier(partition.name)}
    if partition.is_detach_pending:
        await conn.execute(sql.SQL(_FINALIZE).format(**parts))
    elif partition.is_attached:
        await conn.execute(sql.SQL(_DETACH).format(**parts))


async def lock_detached(conn: Connection, partition: DayPartition) -> None:
    """Keep everybody from the day that was taken out of its table, until the transaction's end.

    Whoever reads or writes it is waited for.
    """
    await conn.execute(sql.SQL(_LOCK_DETACHED).format(partition=sql.Identifier(partition.name)))


async def drop_detached(conn: Connection, partition: DayPartition) -> None:
    """Drop the day that was taken out of its table."""
    await conn.execute(sql.SQL(_DROP).format(partition=sql.Identifier(partition.name)))


def _find_day(name: str) -> date | None:
    try:
        return datetime.strptime(name[-8:], "%Y%m%d").replace(tzinfo=UTC).date()
    except ValueError:
        return None


async def _ensure_partition(conn: Connection, table: str, day: date) -> str | None:
    partition = names.partition_name(table, day.strftime("%Y%m%d"))
    row = await (await conn.execute(_EXISTS, (partition,))).fetchone()
    if row is not None and row[0]:
        return None
    first, last = day_bounds(day)
    parts = {
        "parent": sql.Identifier(table),
        "partition": sql.Identifier(partition),
        "first": sql.Literal(first.isoformat()),
        "last": sql.Literal(last.isoformat()),
    }
    await conn.execute(sql.SQL(_CREATE).format(**parts))
    await conn.execute(sql.SQL(_ATTACH).format(**parts))
    return partition
