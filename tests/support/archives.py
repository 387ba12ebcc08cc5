"""What an archive has, held against what the store has."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from typing import Any

import duckdb
import psycopg
from pyspark.sql import SparkSession

from msgdb.postgres.connections import Connection
from spark_etl.archive.config import ArchiveConfig
from spark_etl.archive.job import ArchivedDay, run
from spark_etl.files.reading import list_files
from spark_etl.source.contract import SOURCES


def day_of(days_ago: int) -> date:
    """Return the day in UTC that was so many days ago."""
    return (datetime.now(UTC) - timedelta(days=days_ago)).date()


async def archive(spark: SparkSession, config: ArchiveConfig, day: date, **how: Any) -> ArchivedDay:
    """Archive a day, in a thread: jobs have an event loop of their own."""
    return await asyncio.to_thread(run, spark, config, day, **how)


async def rows_of_store(conn: Connection, day: date) -> list[tuple[Any, ...]]:
    """Return the day's messages, in the archive's order."""
    select = SOURCES["message"].select.format(table=f"message_p{day:%Y%m%d} AS t")
    # As bytes sort, whatever the database's locale is.
    ordered = 'namespace COLLATE "C", topic COLLATE "C", queue_id, queue_offset'
    cursor = await conn.execute(f"{select} ORDER BY {ordered}".encode())
    return await cursor.fetchall()


def rows_of_archive(config: ArchiveConfig, day: date) -> list[tuple[Any, ...]]:
    """Return the rows that readers of the day are given, in the order in which they lie."""
    return rows_of_files(list_files(config.place, "message", day))


def rows_of_files(files: list[str]) -> list[tuple[Any, ...]]:
    """Return the rows of these files, one after the other."""
    if not files:
        return []
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.read_parquet(files, hive_partitioning=False).fetchall()


async def state_of(conn: Connection, day: date) -> tuple[str, list[str]]:
    """Return the day's state, and those of its runs, the earliest first."""
    found = await (await conn.execute("SELECT state FROM archive_day WHERE day = %s", (day,))).fetchone()
    runs = await conn.execute("SELECT state FROM archive_run WHERE day = %s ORDER BY run_id", (day,))
    return ("" if found is None else found[0]), [row[0] for row in await runs.fetchall()]


def is_lapsed(url: str, day: date) -> bool:
    """Tell whether nobody's lease of the day lives any more."""
    with psycopg.connect(url) as connection:
        alive = "SELECT 1 FROM archive_run WHERE day = %s AND state = 'RUNNING' AND lease_until > clock_timestamp()"
        return connection.execute(alive, (day,)).fetchone() is None
