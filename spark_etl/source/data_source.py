"""The message store as a data source of Spark: `spark.read.format("msgdb")`, `spark.readStream.format("msgdb")`.

The options are those of `options`; spark_etl/README.md has a table of them. A password is best in none of them: libpq
reads a passfile or a service (`postgresql:///?service=msgdb`), on each executor. Without the option `url` it is
MSGCENTER_MSGDB_URL, in the environment in which the driver was started.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from msgdb import names
from spark_etl.source.batch import BatchReader
from spark_etl.source.contract import SOURCES, spark_schema
from spark_etl.source.options import batch_options, source_of, stream_options
from spark_etl.source.reading import columns_of
from spark_etl.source.stream import StreamReader


class MsgdbDataSource(DataSource):
    """One table of the store, by the option `table`. All happens on the driver here; tasks get a reader."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "msgdb"

    def schema(self) -> StructType:
        """Return all columns of the table; who wants fewer gives a schema of its own."""
        return spark_schema(source_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of a batch."""
        options = batch_options(self.options)
        return BatchReader(options, columns_of(options.source, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a reader of a stream."""
        options = stream_options(self.options)
        return StreamReader(options, columns_of(SOURCES[names.MESSAGE], schema))


def register(spark: SparkSession) -> None:
    """Make the format `msgdb` known to a session."""
    spark.dataSource.register(MsgdbDataSource)
