"""Reading rows in PostgreSQL's binary format, without detours: times as integers, ids as 16 bytes, headers as dicts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import orjson
import psycopg
from psycopg import AsyncCursor, abc
from psycopg.adapt import Loader
from psycopg.pq import Format
from psycopg.rows import TupleRow

from msgdb.postgres.connections import Connection

TO_1970: Final = "interval '262968 hours'"
"""A timestamptz on the wire is microseconds since 2000: with this added in the statement, `binary_cursor` returns
microseconds since 1970. In hours, because days and years would depend on the session's time zone."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _JsonLoader(Loader):
    """Loads headers from binary jsonb: a version byte, then the text."""

    format = Format.BINARY

    def load(self, data: abc.Buffer) -> dict[str, str]:
        headers: dict[str, str] = orjson.loads(memoryview(data)[1:])
        return headers


def datetime_of(time_us: int) -> datetime:
    """Return microseconds since 1970 as a time in UTC, exactly."""
    return _EPOCH + timedelta(microseconds=time_us)


def micros_of(time: datetime) -> int:
    """Return the microseconds since 1970 of a time: what `datetime_of` takes."""
    return round(time.timestamp() * 1_000_000)


def binary_cursor(conn: Connection) -> AsyncCursor[TupleRow]:
    """Return a cursor that loads timestamptz as its integer, uuid as bytes, and jsonb as headers."""
    cursor = conn.cursor(binary=True)
    cursor.adapters.register_loader("timestamptz", _loader_of("int8"))
    cursor.adapters.register_loader("uuid", _loader_of("bytea"))
    cursor.adapters.register_loader("jsonb", _JsonLoader)
    return cursor


def _loader_of(type_name: str) -> type[abc.Loader]:
    # psycopg's own, in C where it has one: both types look the same on the wire.
    loader = psycopg.adapters.get_loader(psycopg.adapters.types[type_name].oid, Format.BINARY)
    assert loader is not None, "psycopg loads its basic types"
    return loader
