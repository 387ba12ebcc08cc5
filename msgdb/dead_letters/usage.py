"""The usage of dead letters that no broker makes as it serves a lane: counted by the statement that makes them.

What brokers count they write as totals, in rows of their own. These rows are nobody's, and are added to: in the
transaction that makes the dead letters, so that each is counted once.
"""

from __future__ import annotations

from uuid import UUID

from msgdb import names

NOBODY: UUID = UUID(int=0)
"""Whose rows these are: ids of brokers are random."""


def counted_from(made: str) -> str:
    """Return what counts the dead letters of *made*: rows of their group_id, queue_id, event_code and stress.

    Where the table has no partition for today, or no longer, it counts none: that is no reason to keep them from being
    made.
    """
    return f"""
INSERT INTO {names.USAGE_MINUTE} AS u (minute, topic_id, group_id, event_code, stress, broker_id, published, redriven,
                                       replayed, delivered, retried, dead_lettered, size_bytes, latency)
SELECT date_trunc('minute', now()), q.topic_id, d.group_id, d.event_code, d.stress, '{NOBODY}'::uuid, 0, 0, 0, 0, 0,
       count(*), 0, '{{}}'
FROM {made} d JOIN queue q ON q.queue_id = d.queue_id
WHERE EXISTS (
    SELECT FROM pg_inherits i WHERE i.inhparent = '{names.USAGE_MINUTE}'::regclass AND NOT i.inhdetachpending
    AND i.inhrelid = to_regclass('{names.USAGE_MINUTE}_p' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD'))
)
GROUP BY 2, 3, 4, 5 ORDER BY 2, 3, 4, 5
ON CONFLICT (minute, topic_id, group_id, event_code, stress, broker_id)
DO UPDATE SET dead_lettered = u.dead_lettered + excluded.dead_lettered
"""
