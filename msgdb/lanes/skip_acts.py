"""What is written down of messages that were skipped by hand, for those who ask later what became of one.

The dead letter of a skip may be purged since; and one that was there already, from before a reset, says nothing of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from psycopg.types.json import Jsonb

from msgdb.postgres.connections import Connection

_ACTS_MAX: Final = 1_000

# By the index on the time: those since the message was stored, which people typed.
_LIST: Final = """
SELECT act_id, at, actor, reason, (detail ->> 'group_id')::bigint FROM act
WHERE at >= %(since)s AND action = 'message.skip' AND detail ? 'group_id' AND detail @> %(place)s
ORDER BY act_id DESC LIMIT %(limit)s
"""


class SkipAct(NamedTuple):
    """That a group's message was skipped."""

    act_id: int
    at: datetime
    actor: str
    reason: str
    group_id: int


async def list_skip_acts(conn: Connection, queue_id: int, queue_offset: int, since: datetime) -> Sequence[SkipAct]:
    """Return how the message at that place was skipped since then, for any group, the newest first."""
    place = Jsonb({"queue_id": queue_id, "queue_offset": queue_offset})
    cursor = await conn.execute(_LIST, {"since": since, "place": place, "limit": _ACTS_MAX})
    return [SkipAct._make(row) for row in await cursor.fetchall()]
