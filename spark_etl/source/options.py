"""The options of the data source, as Spark hands them over: texts by names in lower case. Pure but for the environment.

What cannot be used is refused by its name. What an option holds is in no refusal where it may be a secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Final

from msgbroker.contract.errors import InvalidSettingError, NoDatabaseError
from msgdb import names
from spark_etl.source.contract import SOURCES, SourceTable
from spark_etl.source.filters import Bounds
from spark_etl.source.pinned import PinnedBounds, pinned_bounds_of
from spark_etl.source.planning import PARTITION_BYTES

URL_VARIABLE: Final = "MSGCENTER_MSGDB_URL"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"

_PARTITION_BYTES_MIN: Final = 1 << 10
_NUMBER_MAX: Final = 1 << 60
_COMMON: Final = frozenset({"url", "replica_url", "replica_wait_seconds", "table", "partition_bytes"})
_OF_BATCHES: Final = _COMMON | {"day", "bounds"}
_OF_STREAMS: Final = _COMMON | {"start", "max_messages_per_batch", "max_bytes_per_batch"}
_ALL: Final = _OF_BATCHES | _OF_STREAMS
_REPLICA_WAIT_SECONDS: Final = 30
_MESSAGES_PER_BATCH: Final = 500_000
_BYTES_PER_BATCH: Final = 512 << 20


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Where the store is read."""

    url: str = field(repr=False)
    replica_url: str | None = field(repr=False)
    replica_wait_seconds: int
    partition_bytes: int

    @property
    def reading_url(self) -> str:
        """The URL of the server that rows are read from."""
        return self.replica_url or self.url


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """What a batch reads."""

    store: StoreOptions
    source: SourceTable
    days: Bounds[datetime]
    pinned: PinnedBounds | None


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What a stream reads, and how much of it at once."""

    store: StoreOptions
    start: datetime | str
    """A time, or EARLIEST, or LATEST."""
    messages_max: int
    bytes_max: int


def source_of(options: Mapping[str, str]) -> SourceTable:
    """Return the table that is to be read, or raise InvalidSettingError; unknown options are refused, too."""
    if unknown := sorted(set(options) - _ALL):
        raise InvalidSettingError(unknown[0], f"is no option of this data source; there are {', '.join(sorted(_ALL))}")
    table = options.get("table", names.MESSAGE)
    if table not in SOURCES:
        raise InvalidSettingError("table", f"cannot be {table!r}; it is one of {', '.join(SOURCES)}")
    return SOURCES[table]


def batch_options(options: Mapping[str, str]) -> BatchOptions:
    """Return what a batch is told, or raise InvalidSettingError."""
    source = source_of(options)
    _refuse_others(options, _OF_BATCHES, "a stream")
    if "day" in options and source.day_column is None:
        raise InvalidSettingError("day", f"has no meaning for {source.name}: its rows are of no day")
    if "bounds" in options and source.name != names.MESSAGE:
        raise InvalidSettingError(
            "bounds", f"has no meaning for {source.name}: only the log of messages keeps its rows"
        )
    return BatchOptions(
        _store_options(options),
        source,
        days_of(options["day"]) if "day" in options else Bounds(),
        pinned_bounds_of(options["bounds"]) if "bounds" in options else None,
    )


def stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Return what a stream is told, or raise InvalidSettingError."""
    if (source := source_of(options)).name != names.MESSAGE:
        raise InvalidSettingError("table", f"cannot be {source.name!r} for a stream: only messages are a log")
    _refuse_others(options, _OF_STREAMS, "a batch")
    return StreamOptions(
        _store_options(options),
        _start_of(options.get("start", EARLIEST)),
        _number(options, "max_messages_per_batch", _MESSAGES_PER_BATCH, 1),
        _number(options, "max_bytes_per_batch", _BYTES_PER_BATCH, 1),
    )


def database_url(given: str | None) -> str:
    """Return the URL of the store: as *given*, else by the environment of this process.

    Raises NoDatabaseError. A password is best in neither, but in a passfile or a service of libpq.
    """
    url = given or os.environ.get(URL_VARIABLE)
    if not url:
        raise NoDatabaseError(URL_VARIABLE, "give the option `url`")
    return url


def days_of(text: str) -> Bounds[datetime]:
    """Return the times of a day, or of several as in `2026-11-10..2026-11-17`, both included. Days are in UTC."""
    first, separator, last = text.partition("..")
    low, high = _day_of(first), _day_of(last if separator else first)
    if high < low:
        raise InvalidSettingError("day", f"is {text!r}: its last day is before its first")
    return Bounds(_midnight(low), _midnight(high) + timedelta(days=1))


def _day_of(text: str) -> date:
    try:
        return datetime.strptime(text.strip(), "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError:
        problem = f"cannot be {text!r}: give a day as 2026-11-17, or several as 2026-11-10..2026-11-17"
        raise InvalidSettingError("day", problem) from None


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _start_of(text: str) -> datetime | str:
    if text in (EARLIEST, LATEST):
        return text
    try:
        start = datetime.fromisoformat(text)
    except ValueError:
        start = None
    if start is None or start.tzinfo is None:
        problem = f"cannot be {text!r}: it is earliest, latest, or a time with its zone as in 2026-11-17T08:00:00+00:00"
        raise InvalidSettingError("start", problem)
    return start.astimezone(UTC)


def _store_options(options: Mapping[str, str]) -> StoreOptions:
    return StoreOptions(
        database_url(options.get("url")),
        options.get("replica_url") or None,
        _number(options, "replica_wait_seconds", _REPLICA_WAIT_SECONDS, 0),
        _number(options, "partition_bytes", PARTITION_BYTES, _PARTITION_BYTES_MIN),
    )


def _number(options: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdecimal() or not least <= int(text[:20]) <= _NUMBER_MAX:
        raise InvalidSettingError(name, f"cannot be {text!r}: it is a whole number of {least} or more")
    return int(text)


def _refuse_others(options: Mapping[str, str], known: frozenset[str], whose: str) -> None:
    if others := sorted(set(options) - known):
        raise InvalidSettingError(others[0], f"has a meaning for {whose} alone")
