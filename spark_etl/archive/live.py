"""The open day, as it goes on: each batch of a stream is a directory with files and a manifest of its own.

It is for looking at a day before it is archived, and is not held against the store: once the day is over it is archived
like any other, and what is here is swept away. A batch that is done again, because its driver died, gets another
directory; the newest one that has a manifest is read.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, time
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from msgbroker.contract.errors import InvalidSettingError
from msgdb import ids, names
from spark_etl.archive.parts import names_of
from spark_etl.archive.task_errors import task_errors
from spark_etl.files.manifest import ArchiveFile, Manifest, file_of
from spark_etl.files.parquet import write_file
from spark_etl.files.places import BatchName, Place, write_manifest
from spark_etl.source.contract import SOURCES
from spark_etl.source.data_source import register

log = structlog.get_logger(__name__)

_SOURCE: Final = SOURCES[names.MESSAGE]
_EVERY_SECONDS_MAX: Final = 3_600.0
_FACTS: Final = "day string, file string"


@dataclass(frozen=True, slots=True)
class LiveConfig:
    """How the open day is written."""

    place: str = field(repr=False)
    """The archive's root."""
    checkpoint: str
    """Where Spark remembers how far the stream is, by Spark's file systems. Without it the stream begins anew."""
    every_seconds: float = 10.0
    """How long messages are gathered for a batch, at least. Each batch is some small files and a manifest to read."""
    is_once: bool = False
    """Whether to end with what there is now."""

    def __post_init__(self) -> None:
        """Refuse what is out of bounds."""
        if not 0 <= self.every_seconds <= _EVERY_SECONDS_MAX:
            raise InvalidSettingError("every_seconds", f"must be 0 to {_EVERY_SECONDS_MAX:g}")


def _tell_nobody(_rows: int) -> None:
    """Take no notice."""


def run_live(
    spark: SparkSession,
    config: LiveConfig,
    options: Mapping[str, str],
    on_written: Callable[[int], None] = _tell_nobody,
) -> StreamingQuery:
    """Begin to write the open day, from midnight on or from where the checkpoint is, and return the stream.

    *options* are those of the data source: where the store is, and how much a batch may have. *on_written* is told how
    many rows each batch had, once they are listed.
    """
    register(spark)
    midnight = datetime.combine(datetime.now(UTC).date(), time(), UTC)
    log_of_messages = spark.readStream.format("msgdb").options(**{"start": midnight.isoformat(), **options}).load()
    trigger: dict[str, Any] = (
        {"availableNow": True} if config.is_once else {"processingTime": f"{config.every_seconds} seconds"}
    )
    return (
        log_of_messages.writeStream.foreachBatch(partial(_write_batch, config.place, on_written))
        .option("checkpointLocation", config.checkpoint)
        .queryName("msgcenter live archive")
        .trigger(**trigger)
        .start()
    )


def _write_batch(place_url: str, on_written: Callable[[int], None], messages: DataFrame, number: int) -> None:
    """Write one batch: files by tasks, and a manifest for each day that it has messages of."""
    context = messages.sparkSession.sparkContext
    stream = str(context.getLocalProperty("sql.streaming.queryId"))[:8]
    batch = BatchName(stream, number, UUID(bytes=ids.to_bytes(ids.mint_run())))
    with task_errors():
        write = partial(_write_partition, place_url, batch)
        facts = messages.coalesce(context.defaultParallelism).mapInArrow(write, _FACTS).collect()
    by_day: dict[date, list[ArchiveFile]] = {}
    for day, file in facts:
        by_day.setdefault(date.fromisoformat(day), []).append(file_of(json.loads(file)))
    place = Place.at(place_url)
    for day, files in sorted(by_day.items()):
        manifest = Manifest(
            table=names.MESSAGE,
            day=day,
            run_id=batch.run_id,
            base_run_id=None,
            system_identifier="",
            timeline="",
            closed_at=None,
            written_at=datetime.now(UTC),
            columns=tuple((each.name, str(each.type)) for each in _SOURCE.schema),
            digests=(),
            files=tuple(files),
        )
        write_manifest(place, manifest, batch.directory(names.MESSAGE, day))
        log.info("live.batch_written", day=f"{day}", number=number, rows=manifest.rows, files=len(files))
        on_written(manifest.rows)


def _write_partition(place_url: str, batch: BatchName, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of a partition, a file for each day of them, and give the facts of the files."""
    place = Place.at(place_url)
    for day, days_rows in _by_day(rows):
        directory = batch.directory(names.MESSAGE, day)
        place.make_directory(directory)
        path = f"{directory}/part-{secrets.token_hex(6)}.parquet"
        file = write_file(place, path, days_rows, schema=_SOURCE.schema, names=names_of(_SOURCE))
        place.settle(path)
        yield pa.RecordBatch.from_pydict({"day": [day.isoformat()], "file": [json.dumps(asdict(file))]})


def _by_day(rows: Iterator[pa.RecordBatch]) -> Iterator[tuple[date, Iterator[pa.RecordBatch]]]:
    """Split what comes by days: one piece for each run of batches of one day, so that few files come of it."""
    for day, pieces in groupby(_day_pieces(rows), key=itemgetter(0)):
        yield day, (piece for _, piece in pieces)


def _day_pieces(rows: Iterator[pa.RecordBatch]) -> Iterator[tuple[date, pa.RecordBatch]]:
    for batch in rows:
        days = batch.column("stored_at").cast(_SOURCE.schema.field("stored_at").type).cast(pa.date32())
        for day in sorted(pc.unique(days).to_pylist()):
            yield day, batch.filter(pc.equal(days, day)).cast(_SOURCE.schema)
