"""The digest: PostgreSQL and the reader of a file come to the same one, and anything that differs shows in it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pytest
from psycopg.types.json import Jsonb

from msgbroker.contract.errors import ArchiveDiffersError
from spark_etl.files.digest import (
    LARGE_BODY_BYTES,
    PAGE_OFFSETS,
    DigestKind,
    PageDigest,
    PageDigests,
    combine,
    kind_for,
    page_digests_sql,
)
from spark_etl.files.parquet import RowNames, read_back, write_file
from spark_etl.files.places import Place
from spark_etl.source import pages
from spark_etl.source.contract import SOURCES
from spark_etl.source.pages import read_range

MESSAGE = SOURCES["message"]
COLUMNS = (
    "queue_id", "queue_offset", "stored_at", "message_id", "namespace", "topic", "event_code", "key", "ordering_key",
    "headers", "body", "born_at", "born_host", "publisher_group", "stress", "target_group", "redrives",
)  # fmt: skip


def text_of(rng: random.Random) -> str:
    return "".join(rng.choice("a'\"\\\n\x01é漢😀{}") for _ in range(rng.randrange(12)))


def random_row(rng: random.Random, offset: int) -> tuple[Any, ...]:
    def maybe(make: Callable[[], object]) -> object:
        return make() if rng.random() < 0.7 else None

    at = datetime.now(UTC) - timedelta(microseconds=rng.randrange(10**9))
    size = LARGE_BODY_BYTES + rng.randrange(-1, 3) if rng.random() < 0.03 else rng.randrange(300)
    return (
        1, offset, datetime.now(UTC), UUID(int=rng.getrandbits(128)), text_of(rng), text_of(rng), text_of(rng),
        maybe(lambda: text_of(rng)), maybe(lambda: text_of(rng)),
        maybe(lambda: Jsonb({text_of(rng): text_of(rng) for _ in range(rng.randrange(4))})),
        rng.randbytes(size), at, maybe(lambda: text_of(rng)), maybe(lambda: text_of(rng)), rng.random() < 0.5,
        maybe(lambda: rng.randrange(-(2**63), 2**63)), rng.randrange(-(2**15), 2**15),
    )  # fmt: skip


@pytest.fixture
def blocking(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


def put(connection: psycopg.Connection[Any], rows: Sequence[tuple[Any, ...]]) -> None:
    values = ", ".join(["%s"] * len(COLUMNS))
    connection.cursor().executemany(f"INSERT INTO message ({', '.join(COLUMNS)}) VALUES ({values})", rows)


def of_store(reading: pages.Connection, kind: DigestKind, first: int, end: int) -> list[PageDigest]:
    rows = MESSAGE.select.format(table="message AS t") + " WHERE t.queue_id = 1"
    with reading.cursor() as cursor:
        cursor.execute(page_digests_sql(kind, rows, "queue_offset", MESSAGE.schema.names).format(first=first, end=end))
        columns = cursor.fetch_arrow_table().columns
    return [PageDigest(*row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]


def of_batches(batches: Iterator[pa.RecordBatch], kind: DigestKind) -> list[PageDigest]:
    digests = PageDigests(kind, "queue_offset", dense=True)
    for batch in batches:
        digests.add(batch)
    return digests.finish()


@pytest.mark.parametrize("kind", DigestKind)
@pytest.mark.parametrize("seed", range(3))
def test_what_was_written_and_read_back_has_the_digest_of_the_store(
    blocking: psycopg.Connection[Any], reading: pages.Connection, tmp_path: Path, kind: DigestKind, seed: int
) -> None:
    rng = random.Random(seed)
    first = rng.randrange(3_000)
    end = first + rng.randrange(1, 3_000)
    put(blocking, [random_row(rng, offset) for offset in range(first, end)])
    place = Place.at(str(tmp_path))

    batches = read_range(reading, MESSAGE, "message", 1, first, end, page_rows=rng.randrange(50, 1_500))
    names = RowNames("queue_id", "queue_offset", "stored_at")
    file = write_file(place, "part", batches, schema=MESSAGE.schema, names=names)

    found = of_batches(read_back(place, "part"), kind)
    assert found == of_store(reading, kind, first, end)
    assert [page.page for page in found] == list(range(first // PAGE_OFFSETS, (end - 1) // PAGE_OFFSETS + 1))
    assert sum(page.rows for page in found) == end - first == file.rows


CHANGES = {
    "stored_at": "stored_at + interval '1 microsecond'", "message_id": "gen_random_uuid()", "namespace": "'x'",
    "topic": "topic || ' '", "event_code": "''", "key": "NULL", "ordering_key": "coalesce(ordering_key, '')",
    "headers": "'{}'", "body": "body || '\\x00'::bytea", "born_at": "born_at - interval '1 microsecond'",
    "born_host": "NULL", "publisher_group": "publisher_group || '1'", "stress": "NOT stress", "target_group": "1",
    "redrives": "redrives + 1",
}  # fmt: skip


@pytest.mark.parametrize("column", CHANGES)
@pytest.mark.parametrize("kind", DigestKind)
def test_a_change_of_one_value_changes_the_digest_of_its_page(
    blocking: psycopg.Connection[Any], reading: pages.Connection, column: str, kind: DigestKind
) -> None:
    full = (1, 0, datetime.now(UTC), UUID(int=1), "default", "TP", "EC", "k", None, Jsonb({"a": "b"}), b"body",
            datetime.now(UTC), "host", "PG", False, None, 0)  # fmt: skip
    put(blocking, [(1, offset, *full[2:]) for offset in range(PAGE_OFFSETS + 10)])
    before = of_batches(read_range(reading, MESSAGE, "message", 1, 0, PAGE_OFFSETS + 10), kind)
    assert before == of_store(reading, kind, 0, PAGE_OFFSETS + 10)

    blocking.execute(f"UPDATE message SET {column} = {CHANGES[column]} WHERE queue_offset = 7")

    after = of_store(reading, kind, 0, PAGE_OFFSETS + 10)
    assert [page == other for page, other in zip(before, after, strict=True)] == [False, True]
    assert combine(kind, before) != combine(kind, after)


def test_a_row_that_is_missing_or_out_of_order_is_found(
    blocking: psycopg.Connection[Any], reading: pages.Connection
) -> None:
    rng = random.Random(1)
    put(blocking, [random_row(rng, offset) for offset in range(10)])
    whole = pa.Table.from_batches(list(read_range(reading, MESSAGE, "message", 1, 0, 10))).to_batches()[0]

    for order, problem in (
        ([0, 1, 3], "offset 3 follows 1"),
        ([0, 2, 1], "offset 2 follows 0"),
        ([1, 1], "1 follows 1"),
    ):
        with pytest.raises(ArchiveDiffersError, match=problem):
            of_batches(iter([whole.take(pa.array(order))]), DigestKind.CRC32C)
    with pytest.raises(ArchiveDiffersError, match="offset 5 follows 3"):
        of_batches(iter([whole.slice(0, 4), whole.slice(5)]), DigestKind.SHA256)


def test_the_function_is_one_that_the_server_has(blocking: psycopg.Connection[Any]) -> None:
    assert (kind_for(180_000), kind_for(170_010)) == (DigestKind.CRC32C, DigestKind.SHA256)
    blocking.execute(f"SELECT {kind_for(blocking.info.server_version)}('x'::bytea)".encode())


def test_the_rows_of_a_page_are_a_range_of_the_primary_key(
    blocking: psycopg.Connection[Any],
) -> None:
    rows = MESSAGE.select.format(table="message AS t") + " WHERE t.queue_id = 1"
    statement = page_digests_sql(DigestKind.SHA256, rows, "queue_offset", MESSAGE.schema.names)

    plan = blocking.execute("EXPLAIN " + statement.format(first=0, end=100_000)).fetchall()

    said = "\n".join(str(line[0]) for line in plan)
    assert "Seq Scan" not in said, said
    assert "Index Cond: ((queue_id = 1) AND (queue_offset >= GREATEST(" in said, said
