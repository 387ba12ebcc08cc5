"""Which queues the messages of a topic lie in: those of a topic that was deleted stay until their days go."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from msgdb.postgres.connections import Connection

# The index on (topic_id, generation, ordinal) leads to no queue whose topic is unknown, so all queues are looked at; of
# those without a topic the first message says what they are of, by the primary key.
_LIST_LEFT: Final = """
SELECT q.queue_id, q.start_offset, m.namespace, m.topic
FROM queue q
CROSS JOIN LATERAL (
    SELECT one.namespace, one.topic FROM message one WHERE one.queue_id = q.queue_id
    ORDER BY one.queue_offset LIMIT 1
) m
WHERE q.topic_id <> ALL(%(topic_ids)s)
ORDER BY q.queue_id
"""


class LeftQueue(NamedTuple):
    """A queue whose topic was deleted, and that has messages still."""

    queue_id: int
    start_offset: int
    namespace: str
    topic: str


async def list_left_queues(conn: Connection, topic_ids: Collection[int]) -> list[LeftQueue]:
    """Return the queues that have messages and belong to none of these topics, which are all that are registered."""
    rows = await (await conn.execute(_LIST_LEFT, {"topic_ids": list(topic_ids)}, prepare=False)).fetchall()
    return [LeftQueue._make(row) for row in rows]
