"""Writing what was traced: many events in a statement, which wait for no disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgdb.postgres.array_rows import array_rows, text_array
from msgdb.postgres.connections import Connection
from msgdb.trace.records import TraceEvent

# What a server that dies had not written is lost, of the last half second: a trace may lack its end.
_DO_NOT_WAIT: Final = "SELECT set_config('synchronous_commit', 'off', true)"

_COLUMNS: Final = {
    "at_us": "bigint",
    "kind": "text",
    "broker": "text",
    "queue_id": "bigint",
    "first_offset": "bigint",
    "last_offset": "bigint",
    "group_id": "bigint",
    "instance": "text",
    "attempt": "integer",
    "handed_at_us": "bigint",
    "detail": "text",
    "left_out": "bigint",
}


def _time(column: str) -> str:
    return f"timestamptz '1970-01-01 00:00:00+00' + e.{column} * interval '1 microsecond'"


# No lock but that of the partition, which nobody minds. Fails where the partition of a day is missing.
_WRITE: Final = f"""
INSERT INTO trace_event (at, kind, broker, queue_id, first_offset, last_offset, group_id, instance, attempt, handed_at,
                         detail, left_out)
SELECT {_time("at_us")}, e.kind, e.broker, e.queue_id, e.first_offset, e.last_offset, e.group_id, e.instance, e.attempt,
       {_time("handed_at_us")}, e.detail, e.left_out
FROM {array_rows("e", **_COLUMNS)}
"""

_NOW: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


async def now_us(conn: Connection) -> int:
    """Return what time it is by the database's clock, in microseconds since 1970."""
    row = await (await conn.execute(_NOW)).fetchone()
    assert row is not None, "it is one row"
    return int(row[0])


async def write_events(conn: Connection, events: Sequence[TraceEvent]) -> None:
    """Write *events*. To be called within a transaction, which then does not wait for the disk as it commits.

    Raises psycopg's CheckViolation where a day of them has no partition.
    """
    await conn.execute(_DO_NOT_WAIT)
    columns = zip(*events, strict=True)
    arrays = {
        name: text_array(values) if _COLUMNS[name] == "text" else _numbers(values)
        for name, values in zip(_COLUMNS, columns, strict=True)
    }
    await conn.execute(_WRITE, arrays)


def _numbers(values: Sequence[int | None]) -> str:
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"
