"""The advisory locks of the store, all of them scoped to a transaction (a session lock would not survive a pooler).

Whoever takes several takes them in this order, ascending within each class: the maintenance guard, partitions, topics,
publishers, queues. Any other order can deadlock with an append.
"""

from __future__ import annotations

from typing import Final

# Two-key locks share one space per database: these classes are far from small numbers, to stay clear of other
# applications, and next to each other, to be recognised in pg_locks.
PUBLISHER_LOCK_CLASS: Final = 1_297_237_584
QUEUE_LOCK_CLASS: Final = 1_297_237_585
TOPIC_LOCK_CLASS: Final = 1_297_237_586
"""Held while a topic's queues are made or sealed."""
PARTITION_LOCK_CLASS: Final = 1_297_237_587
"""Held while a day's partitions are made; the key is the day as yyyymmdd."""
MAINTENANCE_LOCK_CLASS: Final = 1_297_237_588
"""Held by the one broker that does maintenance; the key is 0."""
MIGRATION_LOCK_CLASS: Final = 1_297_237_589
"""Held while migrating; the key is 0."""
HISTORY_LOCK_CLASS: Final = 1_297_237_590
"""Held while a new history is noted; the key is 0. Taken alone."""
BACKLOG_LOCK_CLASS: Final = 1_297_237_591
"""Held by the one broker that looks how far groups are behind; the key is 0. Taken alone."""


def queue_lock_key(queue_id: int) -> int:
    """Return the int32 that names the queue's append lock."""
    return _signed32(queue_id & 0xFFFF_FFFF)


def topic_lock_key(topic_id: int) -> int:
    """Return the int32 that names the topic's layout lock."""
    return _signed32(topic_id & 0xFFFF_FFFF)


def publisher_lock_key(publisher_id: bytes) -> int:
    """Return the int32 that names the publisher's lock: two publishers may share one, which costs a wait, no more."""
    return int.from_bytes(publisher_id[:4], "big", signed=True)


def _signed32(value: int) -> int:
    return value - (value >> 31 << 32)
