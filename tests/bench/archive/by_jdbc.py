"""The same day by what Spark brings: its JDBC source and its Parquet sink.

As fast as it can be had: a task for each queue, values as PostgreSQL's binary format, rows by the ten thousand, and no
order within a file. To check it as Spark can, the store is read once more, and a checksum of all columns of each queue
is compared with that of the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from spark_etl.source.contract import SOURCES

JAR: Final = Path("/usr/share/java/postgresql.jar")
MISSING: Final = "there is no JDBC driver: install Debian's libpostgresql-jdbc-java"
SETTINGS: Final[Mapping[str, str]] = {
    "spark.jars": str(JAR),
    # The level at which we write.
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",
}
# Without the threshold of -1 its driver asks for text: of a body two characters a byte.
_PARAMETERS: Final = {"prepareThreshold": "-1", "binaryTransfer": "true"}
_FETCH_ROWS: Final = 10_000


def copy_day(spark: SparkSession, url: str, partition: str, queues: Sequence[int], target: Path) -> None:
    """Read a day's rows as the archive's contract has them, and write them as Parquet files."""
    _rows(spark, url, partition, queues).write.option("compression", "zstd").parquet(str(target))


def copy_and_check_day(spark: SparkSession, url: str, partition: str, queues: Sequence[int], target: Path) -> None:
    """Copy a day, and see that the files have the rows of the store."""
    copy_day(spark, url, partition, queues, target)
    wanted = _checksums(_rows(spark, url, partition, queues))
    found = _checksums(spark.read.parquet(str(target)))
    if found != wanted:
        raise ValueError(f"{target} differs from the store")


def _rows(spark: SparkSession, url: str, partition: str, queues: Sequence[int]) -> DataFrame:
    select = SOURCES["message"].select.format(table=f"{partition} AS t")
    parts = urlsplit(url)
    credentials = {"user": parts.username or "", "password": parts.password or ""}
    return spark.read.jdbc(
        f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}?{urlencode(_PARAMETERS)}",
        f"({select}) AS m",
        predicates=[f"queue_id = {queue_id}" for queue_id in queues],
        properties={**credentials, "driver": "org.postgresql.Driver", "fetchsize": str(_FETCH_ROWS)},
    )


def _checksums(rows: DataFrame) -> set[tuple[object, ...]]:
    """Return for each queue how many rows it has, and the sum of their hashes."""
    whole = sf.sum(sf.xxhash64(*rows.columns).cast("decimal(38,0)"))
    counted = rows.groupBy("queue_id").agg(sf.count("*"), whole).collect()
    return {tuple(row) for row in counted}
