"""An archive in an object store: written, read back, read by others, and swept, through S3's own interface."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs
from pyspark.sql import SparkSession

from msgbroker.contract.errors import ArchiveDiffersError, ArchivePlaceError
from msgdb.postgres.connections import Connection
from spark_etl.archive.config import ArchiveConfig
from spark_etl.archive.daily import run_daily
from spark_etl.archive.verify import verify
from spark_etl.files.manifest import Manifest
from spark_etl.files.places import Place, find_manifest, list_runs
from spark_etl.files.reading import list_files
from tests.support.archives import archive, day_of, rows_of_store
from tests.support.rows import make_queue, put_messages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

BUCKET = "archive"
SECRET = "hush-hush"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Where a server answers as S3 does."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        fs.S3FileSystem(
            access_key="key",
            secret_key=SECRET,
            scheme="http",
            endpoint_override=f"{host}:{port}",
            region="us-east-1",
            allow_bucket_creation=True,
        ).create_dir(BUCKET)
        yield f"{host}:{port}"
    finally:
        server.stop()


@pytest.fixture
def in_bucket(config: ArchiveConfig, endpoint: str, request: pytest.FixtureRequest) -> ArchiveConfig:
    """An archive of the test's own, in the bucket of all."""
    return replace(config, place=url_of(request.node.name, endpoint))


def url_of(name: str, endpoint: str, secret: str = SECRET) -> str:
    return f"s3://key:{secret}@{BUCKET}/{name}?scheme=http&region=us-east-1&endpoint_override={endpoint}"


def rows_of_files(place: Place, manifest: Manifest) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for file in manifest.files:
        table = pq.read_table(place.below(file.path), filesystem=place.filesystem)
        rows += zip(*(column.to_pylist() for column in table.columns), strict=True)
    return rows


async def test_a_day_in_a_bucket_has_the_rows_of_the_store_and_says_nothing_of_its_keys(
    spark: SparkSession, conn: Connection, in_bucket: ArchiveConfig
) -> None:
    for topic_id in (1, 2):
        # More than one part of an upload.
        await put_messages(conn, await make_queue(conn, topic_id), range(6_000), days_ago=1, body_bytes=1_000)

    done = await archive(spark, replace(in_bucket, file_mib=16), day_of(1))

    place = Place.at(in_bucket.place)
    assert rows_of_files(place, done.manifest) == await rows_of_store(conn, day_of(1))
    files = list_files(in_bucket.place, "message", day_of(1))
    assert files == [f"{place.shown}/{file.path}" for file in done.manifest.files]
    assert all(file.startswith(f"s3://{BUCKET}/") for file in files)
    assert find_manifest(place, "message", day_of(1)) == done.manifest
    noted = await (await conn.execute("SELECT manifest FROM archive_run")).fetchone()
    assert noted is not None
    assert not any(SECRET in text for text in (*files, repr(done), str(noted)))
    verify(spark, in_bucket.place, day_of(1))


async def test_what_is_changed_in_a_bucket_is_found(
    spark: SparkSession, conn: Connection, in_bucket: ArchiveConfig
) -> None:
    await put_messages(conn, await make_queue(conn), range(10), days_ago=1)
    (file,) = (await archive(spark, in_bucket, day_of(1))).manifest.files
    place = Place.at(in_bucket.place)
    content = bytearray(place.read(file.path) or b"")
    content[len(content) // 2] ^= 1
    with place.filesystem.open_output_stream(place.below(file.path)) as stream:
        stream.write(bytes(content))

    with pytest.raises(ArchiveDiffersError, match="was changed"):
        verify(spark, in_bucket.place, day_of(1))
    place.filesystem.delete_file(place.below(file.path))
    with pytest.raises(ArchiveDiffersError, match="is missing"):
        verify(spark, in_bucket.place, day_of(1))


async def test_what_was_replaced_in_a_bucket_is_swept(
    spark: SparkSession, conn: Connection, in_bucket: ArchiveConfig
) -> None:
    await put_messages(conn, await make_queue(conn), range(10), days_ago=1)
    await archive(spark, in_bucket, day_of(1))
    second = await archive(spark, in_bucket, day_of(1), again=True)

    daily = replace(in_bucket, grace_days=0)
    report = await asyncio.to_thread(run_daily, lambda: spark, daily, tables=["message"])

    assert len(report.removed) == 1
    assert list_runs(Place.at(in_bucket.place), "message", day_of(1)) == [second.manifest.run_id]
    verify(spark, in_bucket.place, day_of(1))


async def test_a_bucket_that_is_not_there_fails_the_run_without_its_keys(
    spark: SparkSession, conn: Connection, config: ArchiveConfig, endpoint: str
) -> None:
    nowhere = url_of("a", endpoint).replace(f"@{BUCKET}/", "@no-such-bucket/")

    with pytest.raises(ArchivePlaceError) as refused:
        await archive(spark, replace(config, place=nowhere), day_of(1))

    assert SECRET not in str(refused.value)
