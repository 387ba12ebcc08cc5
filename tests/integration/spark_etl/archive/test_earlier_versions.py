"""What an earlier version has archived is read beside what this one archives, and added to."""

from __future__ import annotations

import duckdb
import pytest
from pyspark.sql import SparkSession

from msgdb.postgres.connections import Connection
from spark_etl.archive.config import ArchiveConfig
from spark_etl.archive.verify import verify
from spark_etl.files.digest import DigestKind
from spark_etl.files.reading import list_files, read_days
from tests.support.archives import archive, day_of
from tests.support.earlier_archives import make_earlier
from tests.support.rows import make_queue, put_messages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


async def test_a_column_that_was_added_is_null_in_the_days_before_and_in_what_a_supplement_adds_to(
    spark: SparkSession, conn: Connection, config: ArchiveConfig
) -> None:
    queue_id, earlier, later = await make_queue(conn), day_of(3), day_of(2)
    await put_messages(conn, queue_id, range(10), days_ago=3)
    await put_messages(conn, queue_id, range(10, 15), days_ago=2)
    await archive(spark, config, earlier)
    await archive(spark, config, later)
    make_earlier(config.place, earlier, without="redrives", kind=DigestKind.SHA256)
    verify(spark, config.place, earlier)

    read = read_days(spark, config.place, "message", earlier, later)
    files = list_files(config.place, "message", earlier, later)

    expected = [(offset, None if offset < 10 else 0) for offset in range(15)]
    assert sorted(map(tuple, read.select("queue_offset", "redrives").collect())) == expected
    with duckdb.connect() as connection:
        by_name = connection.read_parquet(files, union_by_name=True)
        assert by_name.project("queue_offset, redrives").order("queue_offset").fetchall() == expected

    await conn.execute(f"DROP TABLE message_p{earlier:%Y%m%d}".encode())
    await conn.execute("UPDATE archive_day SET state = 'DROPPED' WHERE day = %s", (earlier,))
    await put_messages(conn, queue_id, range(15, 18), days_ago=3)
    await archive(spark, config, earlier)

    whole = read_days(spark, config.place, "message", earlier).select("queue_offset", "redrives").collect()
    assert sorted(map(tuple, whole)) == [*expected[:10], (15, 0), (16, 0), (17, 0)]
    # By two functions: PostgreSQL has become newer in between.
    verify(spark, config.place, earlier)
