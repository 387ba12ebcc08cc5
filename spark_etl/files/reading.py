"""Reading the archive: which files a day consists of, and the days as a DataFrame of Spark's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from itertools import pairwise
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from msgbroker.contract.errors import ArchiveDiffersError, DayNotFoundError
from spark_etl.files.manifest import Manifest
from spark_etl.files.places import Place, find_manifest, list_days, list_live_manifests

_SPARK_SCHEMES: Final = {"s3": "s3a"}
"""What Spark's file systems call what pyarrow's call otherwise."""


def list_manifests(
    url: str, table: str, first: date | str | None = None, last: date | str | None = None
) -> list[Manifest]:
    """Return the manifests of a day, of the days from *first* to *last*, or of all there are, in their order.

    A day that is archived has one; of a day that is open there is one for each batch that a stream has written of it.

    Raises DayNotFoundError where the archive has none of these days, and ArchiveDiffersError where two streams have
    written the same messages.
    """
    begin = None if first is None else _day(first)
    end = begin if last is None else _day(last)
    place = Place.at(url)
    days = (day for day in list_days(place, table) if (begin or day) <= day <= (end or day))
    manifests = [manifest for day in days for manifest in _of_day(place, table, day)]
    if not manifests:
        wanted = f"{begin or 'any day'}" if begin == end else f"{begin} to {end}"
        raise DayNotFoundError(table, wanted, place.shown)
    return manifests


def list_files(url: str, table: str, first: date | str | None = None, last: date | str | None = None) -> list[str]:
    """Return the paths of the files of these days: for whatever reads Parquet.

    Args:
        url: The archive's root.
        table: `message` or `dead_letter`.
        first: A day, as a date or as `2026-11-17`; all days where it is left out.
        last: The last day; the first one where it is left out.

    Raises:
        DayNotFoundError: The archive has none of these days.
    """
    return list(_paths(Place.at(url), list_manifests(url, table, first, last)))


def read_days(
    spark: SparkSession, url: str, table: str, first: date | str | None = None, last: date | str | None = None
) -> DataFrame:
    """Return the rows of these days, as Spark's own Parquet reader reads them from the files that are listed.

    A column that was added between two of the days is NULL in the earlier ones. Raises DayNotFoundError.
    """
    manifests = list_manifests(url, table, first, last)
    schema = _schema(manifests)
    paths = [_for_spark(path) for path in _paths(Place.at(url), manifests)]
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*paths)


def _of_day(place: Place, table: str, day: date) -> list[Manifest]:
    archived = find_manifest(place, table, day)
    if archived is not None:
        return [archived]
    live = list_live_manifests(place, table, day)
    _check_apart(live)
    return live


def _check_apart(manifests: Sequence[Manifest]) -> None:
    """Refuse what is there twice: a stream that was begun anew beside another has written the same messages again."""
    ranges = sorted(
        (each.queue_id, each.first_offset, each.last_offset)
        for manifest in manifests
        for file in manifest.files
        for each in file.ranges
    )
    for (queue_id, _, last), (other_queue_id, first, _) in pairwise(ranges):
        if queue_id == other_queue_id and first <= last:
            raise ArchiveDiffersError(f"two streams have written offset {first} of queue {queue_id}")


def _day(day: date | str) -> date:
    return day if isinstance(day, date) else date.fromisoformat(day)


def _paths(place: Place, manifests: Sequence[Manifest]) -> Iterator[str]:
    for manifest in manifests:
        for file in manifest.files:
            yield place.url_of(file.path)


def _for_spark(path: str) -> str:
    scheme, separator, rest = path.partition("://")
    return f"{_SPARK_SCHEMES.get(scheme, scheme)}://{rest}" if separator else f"file://{path}"


def _schema(manifests: Sequence[Manifest]) -> StructType:
    """Return all columns that any of the days has, with those of the newest first."""
    columns = {name: kind for manifest in reversed(manifests) for name, kind in reversed(manifest.columns)}
    newest = [name for name, _ in manifests[-1].columns]
    ordered = [*newest, *(name for name in columns if name not in newest)]
    schema: StructType = from_arrow_schema(pa.schema([(name, _arrow_type(columns[name])) for name in ordered]))
    return schema


def _arrow_type(name: str) -> pa.DataType:
    return pa.timestamp("us", tz="UTC") if name.startswith("timestamp") else pa.type_for_alias(name)
