"""The same day by what Spark brings: its JDBC source and its Parquet sink. Nothing is read back or compared.

As fast as it can be had: a task for each queue, values as PostgreSQL's binary format, rows by the ten thousand, and no
order within a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit

from pyspark.sql import SparkSession

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
    select = SOURCES["message"].select.format(table=f"{partition} AS t")
    parts = urlsplit(url)
    credentials = {"user": parts.username or "", "password": parts.password or ""}
    rows = spark.read.jdbc(
        f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}?{urlencode(_PARAMETERS)}",
        f"({select}) AS m",
        predicates=[f"queue_id = {queue_id}" for queue_id in queues],
        properties={**credentials, "driver": "org.postgresql.Driver", "fetchsize": str(_FETCH_ROWS)},
    )
    rows.write.option("compression", "zstd").parquet(str(target))
