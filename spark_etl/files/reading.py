"""Reading the archive: which files a day consists of, and the days as a DataFrame of Spark's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from msgbroker.contract.errors import DayNotFoundError
from spark_etl.files.manifest import Manifest
from spark_etl.files.places import Place, find_manifest, list_days

_SPARK_SCHEMES: Final = {"s3": "s3a"}
"""What Spark's file systems call what pyarrow's call otherwise."""


def list_manifests(place: Place, table: str, first: date | None = None, last: date | None = None) -> list[Manifest]:
    """Return the manifests of a table's days, in their order: of all, or of those from *first* to *last*.

    A day that was begun and has no manifest yet is left out.
    """
    days = (day for day in list_days(place, table) if (first or day) <= day <= (last or day))
    found = (find_manifest(place, table, day) for day in days)
    return [manifest for manifest in found if manifest is not None]


def list_files(url: str, table: str, first: date | str, last: date | str | None = None) -> list[str]:
    """Return the paths of all files of a day, or of the days from *first* to *last*: for whatever reads Parquet.

    Args:
        url: The archive's root.
        table: `message` or `dead_letter`.
        first: A day, as a date or as `2026-11-17`.
        last: The last day; the first one where it is left out.

    Raises:
        DayNotFoundError: The archive has none of these days.
    """
    begin, end = _day(first), _day(first if last is None else last)
    place = Place.at(url)
    manifests = list_manifests(place, table, begin, end)
    if not manifests:
        raise DayNotFoundError(table, str(begin) if begin == end else f"{begin} to {end}", url)
    return list(_paths(place, manifests))


def read_days(
    spark: SparkSession, url: str, table: str, first: date | str, last: date | str | None = None
) -> DataFrame:
    """Return the rows of a day, or of several, as Spark's own Parquet reader reads them from the files that are listed.

    A column that was added between two of the days is NULL in the earlier ones. Raises DayNotFoundError.
    """
    begin, end = _day(first), _day(first if last is None else last)
    place = Place.at(url)
    manifests = list_manifests(place, table, begin, end)
    if not manifests:
        raise DayNotFoundError(table, str(begin) if begin == end else f"{begin} to {end}", url)
    schema = _schema(manifests)
    paths = [_for_spark(path) for path in _paths(place, manifests)]
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*paths)


def _day(day: date | str) -> date:
    return day if isinstance(day, date) else date.fromisoformat(day)


def _paths(place: Place, manifests: Sequence[Manifest]) -> Iterator[str]:
    for manifest in manifests:
        for file in manifest.files:
            yield place.below(file.path) if place.is_local else f"{place.url}/{file.path}"


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
