"""Rows put straight into the store's tables, where a test is not about appending."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from msgdb.lanes.checkpoints import Checkpointed, checkpoint, prepare
from msgdb.lanes.records import ClaimedLane, LaneCheckpoint, LaneKey, LaneToClaim
from msgdb.log.partitions import ensure_for
from msgdb.log.queues import ensure_queues
from msgdb.log.reads import MessageRow, read_range
from msgdb.postgres.connections import Connection

OWNER = UUID(int=1)
OTHER_OWNER = UUID(int=2)
GROUP = 7
GROUP_NAMES = {GROUP: "SG_POINTS"}

_INSERT = """
INSERT INTO message (queue_id, queue_offset, stored_at, message_id, namespace, topic, event_code, key, headers, body,
                     born_at, born_host, publisher_group, stress)
SELECT %(queue_id)s, o, %(stored_at)s, gen_random_uuid(), 'default', 'TP_TRADE', 'EC_PAID', 'key-' || o,
       '{"region": "hz"}', convert_to(repeat('x', %(body_bytes)s), 'UTF8'), %(stored_at)s, 'host', 'PG_SHOP', false
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS o
"""


async def make_queue(conn: Connection, topic_id: int = 1) -> int:
    """Return the id of a topic's only queue."""
    (queue,) = await ensure_queues(conn, topic_id, 1, 1)
    return queue.queue_id


async def put_messages(
    conn: Connection, queue_id: int, offsets: range, *, days_ago: int = 0, body_bytes: int = 10
) -> list[MessageRow]:
    """Store messages at these offsets, all at one moment, and return them."""
    stored_at = datetime.now(UTC) - timedelta(days=days_ago)
    await ensure_for(conn, stored_at.date())
    parameters = {
        "queue_id": queue_id,
        "stored_at": stored_at,
        "body_bytes": body_bytes,
        "first": offsets.start,
        "last": offsets.stop - 1,
    }
    await conn.execute(_INSERT, parameters)
    return await read_range(conn, queue_id, offsets.start, len(offsets), 1 << 30)


def lanes_to_claim(queue_ids: Sequence[int], initial_offset: int = 0) -> list[LaneToClaim]:
    """Return lanes of the group, one for each of the queues."""
    return [LaneToClaim(GROUP, "", queue_id, initial_offset) for queue_id in queue_ids]


def keys_of(lanes: Sequence[ClaimedLane]) -> set[LaneKey]:
    """Return the names of the lanes."""
    return {lane.key for lane in lanes}


async def persist(
    conn: Connection, owner: UUID, marks: Sequence[LaneCheckpoint], group_names: Mapping[int, str]
) -> set[LaneKey]:
    """Write a checkpoint of these lanes, and return those that it was written for."""
    return (await write_checkpoint(conn, owner, marks, group_names)).persisted


async def write_checkpoint(
    conn: Connection, owner: UUID, marks: Sequence[LaneCheckpoint], group_names: Mapping[int, str]
) -> Checkpointed:
    """Write a checkpoint of these lanes in a transaction, and return what became of it."""
    async with conn.transaction():
        return await checkpoint(conn, owner, prepare(marks, group_names))
