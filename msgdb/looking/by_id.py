"""Messages by their id: in the day of the id's time, then in its neighbours, then in every day there is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from msgdb import ids
from msgdb.looking.found import COLUMNS, FoundMessage
from msgdb.postgres.binary_rows import binary_cursor, datetime_of
from msgdb.postgres.connections import Connection

STORED_MAX: Final = 100
"""So many of the times that a message was stored are told: each redrive and each replay is one more."""

# What its publisher stored comes before what was stored once more for a single group, whatever the days.
_ORDER: Final = f"ORDER BY m.target_group IS NOT NULL, m.stored_at LIMIT {STORED_MAX + 1}"

# By the index on message_id, of the days between the bounds. Never prepared, like all that joins days without an order.
_FIND: Final = f"""
SELECT {COLUMNS} FROM message m
WHERE m.message_id = %(message_id)s AND m.stored_at >= %(first)s AND m.stored_at < %(end)s {_ORDER}
"""
# By the index on message_id, one probe for each day.
_FIND_ANYWHERE: Final = f"SELECT {COLUMNS} FROM message m WHERE m.message_id = %(message_id)s {_ORDER}"

# By the primary key of each live day.
_AT: Final = f"""
SELECT {COLUMNS} FROM message m
WHERE m.queue_id = %(queue_id)s AND m.queue_offset = %(queue_offset)s LIMIT 1
"""

_DAY_US: Final = 86_400_000_000
_DAY: Final = timedelta(days=1)
_LAST_TIME_US: Final = 2_900_000 * _DAY_US


async def find_by_id(conn: Connection, message_id: UUID) -> list[FoundMessage]:
    """Return a message as often as it is stored, where it is found first; nothing: no day that is there has it."""
    # Whatever the id is: it comes from people. Beyond these, there is no datetime.
    minted_us = min(max(ids.time_us_of(message_id.bytes), _DAY_US), _LAST_TIME_US)
    day = datetime_of(minted_us - minted_us % _DAY_US)
    for first, end in ((day, day + _DAY), (day - _DAY, day + 2 * _DAY)):
        parameters = {"message_id": message_id, "first": first, "end": end}
        if found := await _find(conn, _FIND, parameters):
            return found
    return await list_stored(conn, message_id)


async def list_stored(conn: Connection, message_id: UUID) -> list[FoundMessage]:
    """Return a message as often as it is stored, in whatever day: STORED_MAX times, and one more where there are more.

    What its publisher stored comes first, then what redrives and replays did.
    """
    return await _find(conn, _FIND_ANYWHERE, {"message_id": message_id})


async def find_at(conn: Connection, queue_id: int, queue_offset: int) -> FoundMessage | None:
    """Return what lies at that place of the log."""
    found = await _find(conn, _AT, {"queue_id": queue_id, "queue_offset": queue_offset})
    return found[0] if found else None


async def _find(conn: Connection, statement: str, parameters: dict[str, Any]) -> list[FoundMessage]:
    cursor = binary_cursor(conn)
    await cursor.execute(statement, parameters, prepare=False)
    return [FoundMessage._make(row) for row in await cursor.fetchall()]
