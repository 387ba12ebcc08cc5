"""Reading the store page by page, as record batches of Arrow: binary COPY, without an object for each value.

A page is one statement in a transaction of its own. It is taken in whole before any of it is handed on, so that no
snapshot stays open while whoever reads is busy, or waits: a snapshot that is open for long keeps PostgreSQL from
cleaning up what brokers update all the time. A page is bounded by rows and by bytes, whatever the bodies are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import adbc_driver_manager
import pyarrow as pa
from adbc_driver_manager.dbapi import Connection
from adbc_driver_postgresql import StatementOptions, dbapi

from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.contract.sqlstates import is_outage
from spark_etl.source.contract import SourceTable
from spark_etl.source.literals import identifier, literal

__all__ = ["PAGE_BYTES", "PAGE_ROWS", "Connection", "connect", "fetch_rows", "read_keys", "read_range"]

PAGE_ROWS: Final = 16_384
PAGE_BYTES: Final = 32 << 20
"""A page that has reached it ends; the statement is cancelled, and the next page goes on from there."""
_BATCH_BYTES: Final = 2 << 20

# What libpq says when nobody answers, or somebody refuses. What it says of a URL that it cannot read quotes the URL.
_TELLS_NO_SECRET: Final = re.compile(
    r"(connection to server (at|on)|server closed the connection|FATAL:) [^@]*\Z", re.DOTALL
)


def connect(url: str) -> Connection:
    """Return a connection for reading, each statement of it in a transaction of its own. Its text is UTF-8.

    *url* is anything that libpq takes: a password is best kept out of it, in a passfile or a service
    (`postgresql:///?service=msgdb`). Raises StoreUnavailableError, in which no password is quoted.
    """
    try:
        connection: Connection = dbapi.connect(_with_parameters(url), autocommit=True)
        return connection
    except adbc_driver_manager.Error as error:
        told = _TELLS_NO_SECRET.search(" ".join(str(error).split()))
        problem = told[0] if told else "its url cannot be used"
    # Outside of the handler: no traceback leads to what was said.
    raise StoreUnavailableError(problem)


def read_range(  # noqa: PLR0917 - a table and a range of it
    connection: Connection,
    source: SourceTable,
    table: str,
    queue_id: int,
    first: int,
    end: int,
    *,
    page_rows: int = PAGE_ROWS,
    page_bytes: int = PAGE_BYTES,
    column_names: Sequence[str] | None = None,
    conditions: Sequence[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Give the rows with offsets *first* <= offset < *end*, in their order, as *source* says.

    *table* is the source's table, or one partition of it by name. Where it has no queues, *queue_id* is not looked at,
    and ids are what counts. *conditions* are SQL over the table's own columns that rows have to meet.
    """
    offset = source.offset_column
    assert offset is not None, "who asks for a range knows that there are any"
    schema = source.schema_of(column_names)
    select = source.select_of([*schema.names, offset])
    of_queue = [f"{source.queue_column} = {int(queue_id)}"] if source.queue_column else []
    while first < end:
        page_end = min(first + page_rows, end)
        within = [*of_queue, f"{offset} >= {int(first)}", f"{offset} < {int(page_end)}", *conditions]
        # By the primary key: one range of its index in each partition, merged.
        statement = f"{_filled(select, table, within)} ORDER BY t.{offset}"
        batches, is_whole = _read_page(connection, statement, page_bytes)
        first = page_end if is_whole else batches[-1].columns[-1][-1].as_py() + 1
        yield from _declared(batches, schema)


def read_keys(
    connection: Connection,
    source: SourceTable,
    *,
    page_rows: int = PAGE_ROWS,
    page_bytes: int = PAGE_BYTES,
    column_names: Sequence[str] | None = None,
    conditions: Sequence[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Give the rows of a table in the order of its key; what comes or goes meanwhile may be among them or not."""
    schema = source.schema_of(column_names)
    select = source.select_of([*schema.names, *source.key])
    key = ", ".join(f"t.{name}" for name in source.key)
    behind: list[str] = []
    while True:
        # Never OFFSET: each page begins in the index behind the last row of the one before.
        statement = f"{_filled(select, source.name, [*conditions, *behind])} ORDER BY {key} LIMIT {page_rows}"
        batches, is_whole = _read_page(connection, statement, page_bytes)
        if batches:
            behind = [f"({key}) > ({_last_key(source, batches[-1])})"]
        yield from _declared(batches, schema)
        if is_whole and sum(batch.num_rows for batch in batches) < page_rows:
            return


def fetch_rows(connection: Connection, statement: str) -> list[dict[str, Any]]:
    """Return the few rows that *statement* gives, by their columns' names."""
    with _store_failures(), connection.cursor() as cursor:
        cursor.execute(statement)
        rows: list[dict[str, Any]] = cursor.fetch_arrow_table().to_pylist()
    return rows


def _declared(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Give them as *schema* says, without the columns behind it that pages are counted by. Another type is an error."""
    for batch in batches:
        yield pa.RecordBatch.from_arrays(batch.columns[: len(schema)], schema=schema)


def _last_key(source: SourceTable, batch: pa.RecordBatch) -> str:
    values = [column[-1].as_py() for column in batch.columns[-len(source.key) :]]
    columns = [source.column(name) for name in source.key]
    return ", ".join(literal(value, column.cast_from) for value, column in zip(values, columns, strict=True))


def _filled(select: str, table: str, conditions: Sequence[str]) -> str:
    where = " WHERE " + " AND ".join(conditions) if conditions else ""
    return select.format(table=f"{identifier(table)} AS t") + where


def _read_page(connection: Connection, statement: str, page_bytes: int) -> tuple[list[pa.RecordBatch], bool]:
    """Return what the statement gives, and whether that is all of it."""
    batches: list[pa.RecordBatch] = []
    read_bytes = 0
    with _store_failures(), connection.cursor() as cursor:
        cursor.adbc_statement.set_options(**{StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(_BATCH_BYTES)})
        cursor.execute(statement)
        for batch in cursor.fetch_record_batch():
            batches.append(batch)
            read_bytes += batch.nbytes
            if read_bytes >= page_bytes:
                cursor.adbc_cancel()
                break
        else:
            return batches, True
    _end_cancelled(connection)
    return batches, False


def _end_cancelled(connection: Connection) -> None:
    """Have the server notice that its statement was cancelled: it does not while it waits to send."""
    with connection.cursor() as cursor:
        # Takes in what was sent already, which is no more than buffers hold.
        cursor.execute("SELECT 1")
        cursor.fetchall()


@contextmanager
def _store_failures() -> Iterator[None]:
    """Raise StoreUnavailableError for what passes, as everywhere; let the rest through."""
    try:
        yield
    except adbc_driver_manager.Error as error:
        if not is_outage(error.sqlstate, is_operational=isinstance(error, adbc_driver_manager.OperationalError)):
            raise
        raise StoreUnavailableError(" ".join(str(error).split())) from error


def _with_parameters(url: str) -> str:
    """Return *url* with what the session needs: its text is UTF-8, whatever the database's or the role's default is."""
    if not url.startswith(("postgresql://", "postgres://")):
        return f"{url} client_encoding=UTF8 fallback_application_name=msgcenter-spark"
    return f"{url}{'&' if '?' in url else '?'}client_encoding=UTF8&fallback_application_name=msgcenter-spark"
