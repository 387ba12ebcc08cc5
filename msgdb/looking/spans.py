"""From where to where a queue has what was stored between two times, or behind a place where somebody stopped.

A binary search in one statement, for all queues: within a queue `stored_at` never goes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgdb.log.ends import last_message, next_offset
from msgdb.log.found import Position
from msgdb.postgres.array_rows import array_rows
from msgdb.postgres.binary_rows import datetime_of
from msgdb.postgres.connections import Connection

# Each step is one probe of the primary key for each day and search; some twenty steps. All of it sees one moment: what
# goes meanwhile does not lead it astray.
_SEARCH: Final = f"""
WITH RECURSIVE search (number, queue_id, at, low, high) AS (
    SELECT w.number, w.queue_id, w.at,
           CASE WHEN w.at = 'infinity' THEN {next_offset("q", "tail")} ELSE q.start_offset END,
           CASE WHEN w.at = '-infinity' THEN q.start_offset ELSE {next_offset("q", "tail")} END
    FROM {array_rows("w", number="bigint", queue_id="bigint", at="timestamptz")}
    JOIN queue q ON q.queue_id = w.queue_id
    LEFT JOIN LATERAL {last_message("q.queue_id")} AS tail ON true
    UNION ALL
    SELECT s.number, s.queue_id, s.at,
           CASE WHEN there.stored_at >= s.at THEN s.low ELSE half.middle + 1 END,
           CASE WHEN there.stored_at >= s.at THEN half.middle ELSE s.high END
    FROM search s
    CROSS JOIN LATERAL (SELECT (s.low + s.high) / 2 AS middle OFFSET 0) half
    LEFT JOIN LATERAL (
        SELECT m.stored_at FROM message m WHERE m.queue_id = s.queue_id AND m.queue_offset = half.middle LIMIT 1
    ) there ON true
    WHERE s.low < s.high
)
SELECT number, low FROM search WHERE low >= high
"""

_FOREVER: Final = "infinity"
_EVER: Final = "-infinity"


class Span(NamedTuple):
    """Offsets of a queue."""

    queue_id: int
    first: int
    end: int
    """The one after the last."""


async def find_spans(
    conn: Connection,
    queue_ids: Sequence[int],
    *,
    from_us: int | None = None,
    before_us: int | None = None,
    after: Position | None = None,
    newest_first: bool = False,
) -> list[Span]:
    """Return what each of these queues has of that time; *after*: only what comes behind this place, in that order.

    A queue that has nothing of it is left out.
    """
    ever, forever = _said(from_us, _EVER), _said(before_us, _FOREVER)
    searches = [(queue_id, at) for queue_id in queue_ids for at in (ever, forever, *_around(after, queue_id))]
    offsets = await _search(conn, searches)
    width = len(searches) // len(queue_ids) if queue_ids else 1
    spans = []
    for number, queue_id in enumerate(queue_ids):
        first, end, *stop = offsets[number * width : (number + 1) * width]
        if after is not None:
            edge = _edge(after, queue_id, stop[0], newest_first=newest_first)
            first, end = (first, min(end, edge)) if newest_first else (max(first, edge), end)
        if first < end:
            spans.append(Span(queue_id, first, end))
    return spans


def _around(after: Position | None, queue_id: int) -> list[str]:
    """Return the time that parts a queue's messages into those before *after* and those behind it."""
    if after is None:
        return []
    # Of one moment, the queues with lower ids come first.
    return [_said(after.stored_at_us + (queue_id < after.queue_id), _EVER)]


def _edge(after: Position, queue_id: int, found: int, *, newest_first: bool) -> int:
    if queue_id != after.queue_id:
        return found
    return after.queue_offset if newest_first else after.queue_offset + 1


def _said(time_us: int | None, otherwise: str) -> str:
    return otherwise if time_us is None else datetime_of(time_us).isoformat()


async def _search(conn: Connection, searches: Sequence[tuple[int, str]]) -> list[int]:
    """Return, for each queue and time, the offset of the first message stored then or later, or the next offset."""
    parameters = {
        "number": list(range(len(searches))),
        "queue_id": [queue_id for queue_id, _ in searches],
        "at": [at for _, at in searches],
    }
    found: dict[int, int] = dict(await (await conn.execute(_SEARCH, parameters, prepare=False)).fetchall())
    # A queue that is not there has nothing.
    return [found.get(number, 0) for number in range(len(searches))]
