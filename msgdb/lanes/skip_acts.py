"""What is written down of messages that were skipped by hand, for those who ask later what became of one.

The dead letter of a skip may be purged since; and one that was there already, from before a reset, says nothing of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from psycopg.types.json import Jsonb

from msgdb.postgres.connections import Connection

SKIP: Final = "message.skip"
"""The action of the act."""
_ACTS_MAX: Final = 1_000

# By the index on the time: those since the message was stored, which people typed.
_LIST: Final = f"""
SELECT act_id, at, actor, reason, (detail ->> 'group_id')::bigint FROM act
WHERE at >= %(since)s AND action = '{SKIP}' AND detail ? 'group_id' AND detail @> %(place)s
ORDER BY act_id DESC LIMIT %(limit)s
"""


class SkipAct(NamedTuple):
    """That a group's message was skipped."""

    act_id: int
    at: datetime
    actor: str
    reason: str
    group_id: int


def detail_of_place(group_id: int, queue_id: int, queue_offset: int) -> dict[str, Any]:
    """Return what an act keeps of which message it was done to: its skips are found by that."""
    return {"group_id": group_id, "queue_id": queue_id, "queue_offset": queue_offset}


async def list_skip_acts(conn: Connection, queue_id: int, queue_offset: int, since: datetime) -> Sequence[SkipAct]:
    """Return how the message at that place was skipped since then, for any group, the newest first."""
    place = Jsonb({"queue_id": queue_id, "queue_offset": queue_offset})
    cursor = await conn.execute(_LIST, {"since": since, "place": place, "limit": _ACTS_MAX})
    return [SkipAct._make(row) for row in await cursor.fetchall()]
