"""The store as record batches, page by page."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pyarrow as pa
import pytest

from msgbroker.contract.errors import StoreUnavailableError
from msgdb.postgres.connections import Connection
from spark_etl.source import pages
from spark_etl.source.contract import SOURCES, SourceTable
from spark_etl.source.pages import read_keys, read_range
from tests.support.rows import make_queue, put_messages

MESSAGE = SOURCES["message"]


@pytest.mark.parametrize("source", SOURCES.values(), ids=list(SOURCES))
def test_each_select_gives_the_schema_that_it_declares(source: SourceTable, reading: pages.Connection) -> None:
    with reading.cursor() as cursor:
        cursor.execute(source.select.format(table=source.name))
        given = cursor.fetch_record_batch().read_all().schema

    assert given.equals(source.schema), f"{given.remove_metadata()}"


async def test_a_range_comes_in_order_and_without_its_end(conn: Connection, reading: pages.Connection) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(50), days_ago=1)
    await put_messages(conn, queue_id, range(50, 100))

    read = list(read_range(reading, MESSAGE, "message", queue_id, 10, 90, page_rows=7))

    assert offsets_of(read) == list(range(10, 90))
    assert {str(batch.schema) for batch in read} == {str(MESSAGE.schema)}


async def test_a_page_that_is_full_of_bytes_ends_and_the_next_goes_on_behind_it(
    conn: Connection, reading: pages.Connection
) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(40), body_bytes=1_000_000)

    read = read_range(reading, MESSAGE, "message", queue_id, 0, 40, page_bytes=5_000_000)
    first = next(read)
    # Nothing is under way while whoever reads has the first page.
    assert await backends_at_work(conn) == 0

    assert offsets_of([first, *read]) == list(range(40))


async def test_a_range_is_narrowed_to_columns_and_conditions(conn: Connection, reading: pages.Connection) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(20))

    read = read_range(
        reading, MESSAGE, "message", queue_id, 0, 20, page_rows=3, column_names=["key"], conditions=["key > 'key-5'"]
    )

    assert pa.Table.from_batches(read).to_pydict() == {"key": [f"key-{n}" for n in range(6, 10)]}


async def test_a_table_is_read_behind_each_key_whatever_is_in_it(conn: Connection, reading: pages.Connection) -> None:
    members = ["", "it's", 'a"b', "back\\slash", "日本", "\U0001f600", "z\n"]
    for group_id in (1, 2):
        for member in members:
            await conn.execute(
                "INSERT INTO cursor (group_id, member, queue_id, acked_offset) VALUES (%s, %s, 5, 6)",
                (group_id, member),
            )

    read = pa.Table.from_batches(
        read_keys(reading, SOURCES["cursor"], page_rows=3, column_names=["member", "group_id"])
    )

    assert sorted(read["member"].to_pylist()) == sorted(members * 2)
    assert read["group_id"].to_pylist() == [1] * len(members) + [2] * len(members)


async def test_keys_that_are_ids_and_times_are_read_behind_too(conn: Connection, reading: pages.Connection) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(1))
    await conn.execute(
        "INSERT INTO publisher_frame (publisher_id, sequence, stored_at, first_sequence, outcome)"
        " SELECT gen_random_uuid(), n, now(), n, '' FROM generate_series(1, 10) n"
    )

    read = pa.Table.from_batches(read_keys(reading, SOURCES["publisher_frame"], page_rows=3))

    assert sorted(read["sequence"].to_pylist()) == list(range(1, 11))


def test_text_is_utf8_whatever_the_role_says(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET client_encoding = 'LATIN1'")
        connection.execute("INSERT INTO act (actor, action, thing, reason) VALUES ('日本', 'a', 't', 'r')")

    with pages.connect(database_url) as reading:
        (batch,) = read_keys(reading, SOURCES["act"], column_names=["actor"])

    assert batch.to_pydict() == {"actor": ["日本"]}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://reader:s3cret@127.0.0.1:1/nowhere",
        "postgresql://reader:s3cret%zz@127.0.0.1/nowhere",
        "postgresql://reader:at@s3cret@[/nowhere",
        "host=127.0.0.1 port=1 password=s3cret",
    ],
)
def test_no_password_is_quoted_where_nobody_answers(url: str) -> None:
    with pytest.raises(StoreUnavailableError) as raised:
        pages.connect(url)

    assert "s3cret" not in str(raised.value)
    assert (raised.value.__cause__, raised.value.__context__) == (None, None)


def test_a_server_that_goes_away_is_told_as_such() -> None:
    def hang_up() -> None:
        connection, _ = listening.accept()
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:
        hung_up = pool.submit(hang_up)
        with pytest.raises(StoreUnavailableError, match="server closed the connection unexpectedly"):
            pages.connect(f"postgresql://reader:s3cret@127.0.0.1:{listening.getsockname()[1]}/db?sslmode=disable")
        hung_up.result()


def offsets_of(batches: list[pa.RecordBatch]) -> list[int]:
    """Return the offsets of all rows, in their order."""
    return [offset for batch in batches for offset in batch.column("queue_offset").to_pylist()]


async def backends_at_work(conn: Connection) -> int:
    """Return how many of the readers' sessions are in a transaction."""
    found = await conn.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'msgcenter-spark' AND xact_start IS NOT NULL"
    )
    (count,) = await found.fetchone() or (0,)
    return int(count)
