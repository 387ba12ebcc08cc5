"""Beginnings: a group's place at the start of a topic, kept until brokers know what it is kept for.

A subscription from the beginning is for groups without a cursor on the topic. Before brokers know of it, one that
claims the group's lanes would make their cursors where the group's other subscriptions start, or pass what the new one
wants. So the cursors are made before the change commits, at the start of the queues, and are owned by the version of
the configuration that is to have the subscription: only brokers that know that version claim them.

If the change fails, the lanes are free for everybody after KEPT_SECONDS, and are read from their start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from msgdb.postgres.connections import Connection

KEPT_SECONDS: Final = 60.0
"""How long a beginning is kept: far longer than it takes brokers to hear of a version."""

# An owner that is no broker: ids of brokers are random, and of the version of UUIDs that says so.
_FIRST: Final = 0xFFFF_FFFF_FFFF_FFFF << 64
FIRST_KEEPER: Final = UUID(int=_FIRST)
"""The first of the owners that are no brokers: all from here on are versions of the configuration."""


def keeper_of(version: int) -> UUID:
    """Return the owner that keeps lanes for *version* of the configuration."""
    return UUID(int=_FIRST | version)


# A broker that is just making these cursors is waited for, one that is frozen in it is not.
_WAIT_FOR_LOCKS: Final = "SELECT set_config('lock_timeout', '2s', true)"

# A cursor that another version keeps is no place yet: nobody has read by it.
_KEEP: Final = """
INSERT INTO cursor AS c (group_id, member, queue_id, acked_offset, owner, lease_until)
SELECT %(group_id)s, '', queue_id, 0, %(keeper)s, clock_timestamp() + %(kept_seconds)s * interval '1 second'
FROM unnest(%(queue_ids)s::bigint[]) AS wanted (queue_id)
ORDER BY queue_id
ON CONFLICT (group_id, member, queue_id) DO UPDATE SET owner = excluded.owner, lease_until = excluded.lease_until
WHERE c.owner >= %(first_keeper)s
"""


async def keep_beginning(conn: Connection, group_id: int, queue_ids: Sequence[int], version: int) -> bool:
    """Keep the start of these queues for a group until brokers know *version*. In a transaction of the caller's.

    Return whether it could be: not if the group has a place on any of them. Then the caller takes its transaction back.
    """
    await conn.execute(_WAIT_FOR_LOCKS)
    parameters: dict[str, Any] = {
        "group_id": group_id,
        "queue_ids": list(queue_ids),
        "keeper": keeper_of(version),
        "first_keeper": FIRST_KEEPER,
        "kept_seconds": KEPT_SECONDS,
    }
    kept = await conn.execute(_KEEP, parameters)
    return kept.rowcount == len(queue_ids)
