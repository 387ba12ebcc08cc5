"""Which groups gave a message up: the dead letters of where it was stored, whatever the group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgdb.log.found import Position
from msgdb.postgres.array_rows import array_rows
from msgdb.postgres.binary_rows import TO_1970, binary_cursor, datetime_of
from msgdb.postgres.connections import Connection

DEATHS_MAX: Final = 1_000

# The groups that have dead letters, one probe of the index on (group_id, id) for each; then for each of them and each
# place the unique key of dead letters. Whether they were redriven: by the primary key of redrive.
_LIST: Final = f"""
WITH RECURSIVE group_ids (group_id) AS (
    SELECT min(group_id) FROM dead_letter
    UNION ALL
    SELECT (SELECT min(d.group_id) FROM dead_letter d WHERE d.group_id > h.group_id)
    FROM group_ids h WHERE h.group_id IS NOT NULL
)
SELECT d.id, d.group_id, d.group_name, d.died_at + {TO_1970}, d.attempts, d.reason, d.last_error,
       (SELECT max(r.redriven_at) FROM redrive r WHERE r.dead_letter_id = d.id) + {TO_1970}
FROM group_ids h
CROSS JOIN {array_rows("w", queue_id="bigint", queue_offset="bigint", stored_at="timestamptz")}
CROSS JOIN LATERAL (
    SELECT * FROM dead_letter one
    WHERE one.group_id = h.group_id AND one.queue_id = w.queue_id AND one.queue_offset = w.queue_offset
      AND one.stored_at = w.stored_at
    LIMIT 1
) d
ORDER BY d.id LIMIT {DEATHS_MAX}
"""


class Death(NamedTuple):
    """That a group gave a message up."""

    dead_letter_id: int
    group_id: int
    group: str
    died_at_us: int
    attempts: int
    reason: str
    last_error: str | None
    redriven_at_us: int | None
    """When it was redriven last; None: it is open."""


async def list_deaths(conn: Connection, positions: Sequence[Position]) -> list[Death]:
    """Return the dead letters of messages at these places, the oldest first; of purged ones nothing is left."""
    cursor = binary_cursor(conn)
    parameters = {
        "queue_id": [position.queue_id for position in positions],
        "queue_offset": [position.queue_offset for position in positions],
        "stored_at": [datetime_of(position.stored_at_us) for position in positions],
    }
    await cursor.execute(_LIST, parameters, prepare=False)
    return [Death._make(row) for row in await cursor.fetchall()]
