"""How large the rows of a closed day are, about: by them its files are packed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from psycopg import sql

from msgdb import names
from msgdb.archive.day_rows import day_is_there
from msgdb.archive.records import ArchiveRange
from msgdb.postgres.connections import Connection

_SAMPLES: Final = 32
_ROW_BYTES: Final = 200
"""What a message has beside its body and its headers, about."""

# Some rows of each queue by the primary key, evenly spread: of a large body only its length is read. A queue has the
# messages of one topic.
_MEASURE_MESSAGES: Final = f"""
SELECT r.queue_id, min(m.namespace), min(m.topic),
       avg(octet_length(m.body) + coalesce(pg_column_size(m.headers), 0) + {_ROW_BYTES})::float8
FROM unnest(%(queue_ids)s::bigint[], %(firsts)s::bigint[], %(lasts)s::bigint[]) AS r (queue_id, first, last)
CROSS JOIN LATERAL generate_series(r.first, r.last, greatest((r.last - r.first) / {_SAMPLES}, 1)) AS o (queue_offset)
JOIN LATERAL (
    SELECT * FROM {{partition}} AS p WHERE p.queue_id = r.queue_id AND p.queue_offset = o.queue_offset LIMIT 1
) AS m ON true
GROUP BY r.queue_id
"""
_MEASURE_DEAD_LETTERS: Final = f"""
SELECT 0::bigint, '', '', avg(octet_length(d.body) + coalesce(pg_column_size(d.headers), 0) + {_ROW_BYTES})::float8
FROM generate_series(%(first)s::bigint, %(last)s, greatest((%(last)s - %(first)s) / {_SAMPLES}, 1)) AS s (id)
JOIN dead_letter d ON d.id = s.id
"""


class MeasuredRange(NamedTuple):
    """A closed range, with what its files are sorted and packed by."""

    range: ArchiveRange
    namespace: str
    topic: str
    row_bytes: float
    """The mean of a row, of a sample."""


async def measure_ranges(
    conn: Connection, table: str, partition: str, ranges: Sequence[ArchiveRange]
) -> list[MeasuredRange]:
    """Return the ranges of a closed day with the size of their rows, in the order in which they are archived.

    Raises ThingNotFoundError where the store has the day no more.
    """
    if table == names.MESSAGE:
        statement = sql.SQL(_MEASURE_MESSAGES).format(partition=sql.Identifier(partition))
        parameters: dict[str, object] = {
            "queue_ids": [each.queue_id for each in ranges],
            "firsts": [each.first_offset for each in ranges],
            "lasts": [each.last_offset for each in ranges],
        }
        with day_is_there(table, partition):
            rows = await (await conn.execute(statement, parameters)).fetchall()
    else:
        rows = []
        for each in ranges:
            found = await conn.execute(_MEASURE_DEAD_LETTERS, {"first": each.first_offset, "last": each.last_offset})
            rows += await found.fetchall()
    by_queue = {queue_id: (namespace, topic, row_bytes) for queue_id, namespace, topic, row_bytes in rows}
    unknown = ("", "", float(_ROW_BYTES))
    measured = [MeasuredRange(each, *by_queue.get(each.queue_id, unknown)) for each in ranges]
    return sorted(
        (each._replace(row_bytes=each.row_bytes or _ROW_BYTES) for each in measured),
        key=lambda each: (each.namespace, each.topic, each.range.queue_id),
    )
