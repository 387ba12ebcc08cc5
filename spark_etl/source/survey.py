"""What the driver asks the store before tasks are made: where queues begin and end, and about how large their rows are.

No message is read for that but some, here and there, for their sizes, which do not leave the database either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from msgbroker.contract.errors import DatabaseRefusedError, StoreUnavailableError
from msgdb import names
from spark_etl.source.contract import SourceTable
from spark_etl.source.filters import Bounds, Pushed
from spark_etl.source.literals import literal
from spark_etl.source.pages import Connection, fetch_rows
from spark_etl.source.planning import OffsetRange, scaled

_SAMPLES_PER_RANGE: Final = 16
_SAMPLES: Final = 20_000
"""In all, about, for each day: with very many queues, fewer of each."""
_OTHER_BYTES: Final = 200
"""About what a message has beside its body and its headers."""
_ROW_BYTES: Final = f"{_OTHER_BYTES} + octet_length(t.body) + coalesce(octet_length(t.headers::text), 0)"

# The days that are attached; one whose detach was begun is read by nobody any more.
_DAYS: Final = """
SELECT c.relname::text AS name, pg_table_size(c.oid) AS bytes
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = '{table}'::regclass AND NOT i.inhdetachpending
ORDER BY c.relname
"""

# For each queue two probes of the primary key of that day (its bounds are literals: other days are left out), and one
# probe for each row of the sample: LIMIT keeps it from becoming a join that reads the day from end to end. A queue's
# messages are all of one topic: its first one tells whether it is wanted.
_QUEUES_OF_DAY: Final = f"""
SELECT q.queue_id, f.queue_offset AS first, l.queue_offset + 1 AS end, s.row_bytes
FROM (
    SELECT t.queue_id, greatest(least({_SAMPLES_PER_RANGE}, {_SAMPLES} / count(*) OVER ()), 2) AS samples
    FROM queue t {{wanted_queues}}
) q
CROSS JOIN LATERAL (
    SELECT t.queue_offset, {{is_wanted}} AS is_wanted FROM message t
    WHERE t.queue_id = q.queue_id {{of_day}} ORDER BY t.queue_offset LIMIT 1
) f
CROSS JOIN LATERAL (
    SELECT t.queue_offset FROM message t WHERE t.queue_id = q.queue_id {{of_day}} ORDER BY t.queue_offset DESC LIMIT 1
) l
CROSS JOIN LATERAL (
    SELECT avg(r.row_bytes)::float8 AS row_bytes
    FROM generate_series(0, q.samples - 1) AS place (n)
    CROSS JOIN LATERAL (
        SELECT {_ROW_BYTES} AS row_bytes FROM message t WHERE t.queue_id = q.queue_id {{of_day}}
            AND t.queue_offset = f.queue_offset + (l.queue_offset - f.queue_offset) * place.n / (q.samples - 1)
        LIMIT 1
    ) r
) s
WHERE f.is_wanted
ORDER BY q.queue_id
"""

# Where each queue begins and goes on: the last row of the newest day that has one, or its start where days are gone.
_ENDS: Final = """
SELECT q.queue_id, q.start_offset AS start, greatest(q.start_offset, l.queue_offset + 1) AS end
FROM queue q
LEFT JOIN LATERAL (
    SELECT t.queue_offset FROM message t WHERE t.queue_id = q.queue_id ORDER BY t.queue_offset DESC LIMIT 1
) l ON true
ORDER BY q.queue_id
"""

# A few rows of each range, each by a probe of the primary key.
_SIZES: Final = f"""
SELECT w.queue_id, avg(r.row_bytes)::float8 AS row_bytes
FROM (VALUES {{ranges}}) AS w (queue_id, first, last)
CROSS JOIN generate_series(0, {{samples}} - 1) AS place (n)
CROSS JOIN LATERAL (
    SELECT {_ROW_BYTES} AS row_bytes FROM message t
    WHERE t.queue_id = w.queue_id AND t.queue_offset = w.first + (w.last - w.first) * place.n / ({{samples}} - 1)
    LIMIT 1
) r
GROUP BY w.queue_id
"""

# One probe of the primary key for each queue.
_STORED_BEFORE: Final = """
SELECT w.queue_id, r.stored_at < {time} AS is_before
FROM (VALUES {places}) AS w (queue_id, queue_offset)
CROSS JOIN LATERAL (
    SELECT t.stored_at FROM message t WHERE t.queue_id = w.queue_id AND t.queue_offset = w.queue_offset LIMIT 1
) r
"""

# msgdb.postgres.history. On a standby there is no timeline to compare with.
_HISTORY: Final = """
SELECT h.history_id::text AS history_id, CASE WHEN pg_is_in_recovery() THEN true ELSE h.timeline = (
    SELECT system_identifier || '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)
    FROM pg_control_system()
) END AS is_current
FROM log_history h ORDER BY h.ordinal DESC LIMIT 1
"""

# Of all rows two probes of the primary key; of some times by the index on the time. MATERIALIZED, or the smallest id
# would be looked for along the primary key, past all the rows of earlier days.
_BYTES_OF_ID: Final = """
pg_table_size('{table}'::regclass)::float8 / (SELECT max(a.id) - min(a.id) + 1 FROM {table} a) AS row_bytes
"""
_IDS: Final = f"SELECT min(t.id) AS first, max(t.id) + 1 AS end, {_BYTES_OF_ID} FROM {{table}} t"
_IDS_WITHIN: Final = f"""
WITH t AS MATERIALIZED (SELECT id FROM {{table}} AS t WHERE {{within}})
SELECT min(t.id) AS first, max(t.id) + 1 AS end, {_BYTES_OF_ID} FROM t
"""


class QueueEnds(NamedTuple):
    """Where a queue begins, and the offset that its next message gets."""

    start: int
    end: int


def find_history_id(connection: Connection) -> str:
    """Return the marker of the store's history.

    Raises StoreUnavailableError while it has a new one that no broker has noted yet.
    """
    (row,) = fetch_rows(connection, _HISTORY)
    if not row["is_current"]:
        raise StoreUnavailableError("it was promoted, and no broker has noted its new history yet")
    return str(row["history_id"])


def queue_ends(connection: Connection) -> dict[int, QueueEnds]:
    """Return where each queue begins and ends."""
    return {row["queue_id"]: QueueEnds(row["start"], row["end"]) for row in fetch_rows(connection, _ENDS)}


def row_sizes(connection: Connection, ranges: Mapping[int, tuple[int, int]]) -> dict[int, float]:
    """Return about how many bytes a message has, for each queue and its range of offsets that has any."""
    wanted = [(queue_id, first, end - 1) for queue_id, (first, end) in ranges.items() if first < end]
    if not wanted:
        return {}
    samples = max(2, min(_SAMPLES_PER_RANGE, _SAMPLES // len(wanted)))
    statement = _SIZES.format(ranges=_values(wanted), samples=samples)
    return {row["queue_id"]: row["row_bytes"] for row in fetch_rows(connection, statement)}


def offsets_at(connection: Connection, ranges: Mapping[int, tuple[int, int]], time: datetime) -> dict[int, int]:
    """Return, for each queue, the offset in its range of the first message stored at *time* or later, or its end.

    A binary search in all of them together: within a queue `stored_at` never goes back.
    """
    low = {queue_id: first for queue_id, (first, _) in ranges.items()}
    high = {queue_id: max(first, end) for queue_id, (first, end) in ranges.items()}
    while places := [(each, (low[each] + high[each]) // 2) for each in ranges if low[each] < high[each]]:
        found = fetch_rows(connection, _STORED_BEFORE.format(time=literal(time), places=_values(places)))
        is_before = {row["queue_id"]: row["is_before"] for row in found}
        for queue_id, middle in places:
            # A message that is gone was dropped with its day: what is sought comes later.
            if is_before.get(queue_id, True):
                low[queue_id] = middle + 1
            else:
                high[queue_id] = middle
    return low


def ranges_of_log(connection: Connection, pushed: Pushed, times: Bounds[datetime]) -> list[OffsetRange]:
    """Return what the log of messages has, by queue and then by day, within *times* and what is pushed."""
    times = times.within(pushed.times)
    found: list[OffsetRange] = []
    for day, table_bytes in days_within(connection, names.MESSAGE, times):
        ranges = [
            each.cut(pushed.offsets.low, pushed.offsets.high)
            for each in scaled(_queues_of(connection, pushed, day), table_bytes)
        ]
        found += _cut_to_times(connection, ranges, day, times)
    return sorted((each for each in found if each.first < each.end), key=lambda each: (each.queue_id, each.first))


def range_of_ids(
    connection: Connection, source: SourceTable, pushed: Pushed, times: Bounds[datetime]
) -> list[OffsetRange]:
    """Return the ids of a table that counts its rows, within *times* and what is pushed."""
    assert source.day_column is not None, "the tables that count their rows have days"
    within = " AND ".join(times_conditions(source.day_column, times.within(pushed.times)))
    statement = (_IDS_WITHIN if within else _IDS).format(table=source.name, within=within)
    (row,) = fetch_rows(connection, statement)
    if row["first"] is None:
        return []
    whole = OffsetRange(0, row["first"], row["end"], max(1.0, row["row_bytes"]))
    cut = whole.cut(pushed.offsets.low, pushed.offsets.high)
    return [cut] if cut.first < cut.end else []


def days_within(
    connection: Connection, table: str, times: Bounds[datetime]
) -> list[tuple[tuple[datetime, datetime], int]]:
    """Return the days of a partitioned table that have times within *times*, each with its size in bytes."""
    days = []
    for row in fetch_rows(connection, _DAYS.format(table=table)):
        first = _day_of(row["name"])
        end = first + timedelta(days=1)
        if (times.low is None or times.low < end) and (times.high is None or first < times.high):
            days.append(((first, end), row["bytes"]))
    return days


def _day_of(partition: str) -> datetime:
    try:
        return datetime.strptime(partition[-8:], "%Y%m%d").replace(tzinfo=UTC)
    except ValueError:
        problem = f"its partition {partition} is not named by a day: somebody has attached it; detach it"
        raise DatabaseRefusedError("the message store", problem) from None


def times_conditions(column: str, times: Bounds[datetime]) -> list[str]:
    """Return *times* as conditions on a column."""
    low = [] if times.low is None else [f"t.{column} >= {literal(times.low)}"]
    high = [] if times.high is None else [f"t.{column} < {literal(times.high)}"]
    return [*low, *high]


def _queues_of(connection: Connection, pushed: Pushed, day: tuple[datetime, datetime]) -> list[OffsetRange]:
    wanted = pushed.of_columns("queue_id")
    topic = pushed.of_columns("namespace", "topic")
    statement = _QUEUES_OF_DAY.format(
        wanted_queues=f"WHERE {' AND '.join(wanted)}" if wanted else "",
        is_wanted=" AND ".join(topic) or "true",
        of_day="".join(f" AND {condition}" for condition in times_conditions("stored_at", Bounds(*day))),
    )
    return [
        OffsetRange(row["queue_id"], row["first"], row["end"], row["row_bytes"], day)
        for row in fetch_rows(connection, statement)
    ]


def _cut_to_times(
    connection: Connection, ranges: list[OffsetRange], day: tuple[datetime, datetime], times: Bounds[datetime]
) -> list[OffsetRange]:
    """Cut *ranges* of a day to the offsets of *times*, where these begin or end within the day."""
    for edge, is_first in ((times.low, True), (times.high, False)):
        if edge is None or not day[0] < edge < day[1]:
            continue
        found = offsets_at(connection, {each.queue_id: (each.first, each.end) for each in ranges}, edge)
        ranges = [
            each.cut(found[each.queue_id], None) if is_first else each.cut(None, found[each.queue_id])
            for each in ranges
        ]
    return ranges


def _values(rows: Sequence[tuple[Any, ...]]) -> str:
    return ", ".join("(" + ", ".join(f"{int(value)}::bigint" for value in row) + ")" for row in rows)
