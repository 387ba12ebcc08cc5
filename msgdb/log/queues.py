"""Queues: made when a topic is first used, sealed when its layout changes, read for their tails."""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from psycopg import Rollback

from msgdb.locks import QUEUE_LOCK_CLASS, TOPIC_LOCK_CLASS, queue_lock_key, topic_lock_key
from msgdb.log.beginnings import FIRST_KEEPER, keep_beginning
from msgdb.log.config_mark import ConfigMark, raise_mark, read_mark
from msgdb.log.reads import next_offsets
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore


class QueueRow(NamedTuple):
    """A queue: one append-only log of a topic."""

    queue_id: int
    topic_id: int
    generation: int
    ordinal: int
    start_offset: int
    sealed: bool


_COLUMNS: Final = "queue_id, topic_id, generation, ordinal, start_offset, sealed"

_LIST: Final = f"SELECT {_COLUMNS} FROM queue ORDER BY queue_id"

_FIND: Final = f"SELECT {_COLUMNS} FROM queue WHERE queue_id = %s"

# By the unique index on (topic_id, generation, ordinal).
_LIST_OF_TOPIC: Final = f"SELECT {_COLUMNS} FROM queue WHERE topic_id = %s ORDER BY generation, ordinal"

# By the unique index on (topic_id, generation, ordinal), then the primary key of cursor.
_HAS_CURSOR: Final = """
SELECT EXISTS (
    SELECT 1 FROM queue q JOIN cursor c ON c.group_id = %(group_id)s AND c.member = '' AND c.queue_id = q.queue_id
    WHERE q.topic_id = %(topic_id)s AND (c.owner IS NULL OR c.owner < %(first_keeper)s)
)
"""

# Reads all cursors. It is asked when someone registers a subscription, and never in a loop of a broker.
_LANE_OWNERS: Final = """
SELECT DISTINCT owner FROM cursor WHERE owner < %(first_keeper)s AND lease_until > clock_timestamp()
"""

_LOCK_SECONDS: Final = 2.0
_WAIT_FOR_LOCKS: Final = "SELECT set_config('lock_timeout', %s, true)"
_LOCK: Final = "SELECT pg_advisory_xact_lock(%s, %s)"

# Under the topic's lock. A broker with an old picture may ask for a layout that was replaced: those queues are born
# sealed, so that its append learns of the new one.
_INSERT: Final = """
INSERT INTO queue (topic_id, generation, ordinal, sealed)
SELECT %(topic_id)s, %(generation)s, ordinal,
       EXISTS (SELECT 1 FROM queue newer WHERE newer.topic_id = %(topic_id)s AND newer.generation > %(generation)s)
FROM generate_series(0, %(count)s::integer - 1) AS wanted (ordinal)
WHERE NOT EXISTS (
    SELECT 1 FROM queue q
    WHERE q.topic_id = %(topic_id)s AND q.generation = %(generation)s AND q.ordinal = wanted.ordinal
)
"""

_SEAL: Final = "UPDATE queue SET sealed = true WHERE queue_id = ANY(%s) AND NOT sealed"


async def list_queues(conn: Connection) -> list[QueueRow]:
    """Return every queue of the store."""
    cursor = await conn.execute(_LIST)
    return [QueueRow._make(row) for row in await cursor.fetchall()]


async def ensure_queues(
    conn: Connection, topic_id: int, generation: int, count: int, *, lock_seconds: float | None = None
) -> list[QueueRow]:
    """Make what is missing of a topic's layout, seal what it replaces, and return that layout's queues by ordinal.

    Any number may try at once. Not to be called while holding an append lock: sealing takes those of the older queues,
    and waits *lock_seconds* for each, or what the session says.
    """
    queues = await list_topic_queues(conn, topic_id)
    if not _stands(queues, generation, count):
        async with conn.transaction():
            if lock_seconds is not None:
                await conn.execute(_WAIT_FOR_LOCKS, (f"{int(lock_seconds * 1_000)}ms",))
            await conn.execute(_LOCK, (TOPIC_LOCK_CLASS, topic_lock_key(topic_id)))
            await conn.execute(_INSERT, {"topic_id": topic_id, "generation": generation, "count": count})
            await _seal_older(conn, topic_id, generation)
            queues = await list_topic_queues(conn, topic_id)
    return [queue for queue in queues if queue.generation == generation and queue.ordinal < count]


async def list_topic_queues(conn: Connection, topic_id: int) -> list[QueueRow]:
    """Return the queues of all of a topic's layouts, the oldest first."""
    cursor = await conn.execute(_LIST_OF_TOPIC, (topic_id,))
    return [QueueRow._make(row) for row in await cursor.fetchall()]


async def find_queue(conn: Connection, queue_id: int) -> QueueRow | None:
    """Return one queue."""
    row = await (await conn.execute(_FIND, (queue_id,))).fetchone()
    return None if row is None else QueueRow._make(row)


class QueueTailReader:
    """What changes of the configuration depend on: where queues end, who has read them, who delivers, and the mark."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    async def tails(self, topic_id: int, generation: int, queue_count: int) -> dict[int, int]:
        """Return the next offset of each queue of the topic, of all layouts; make missing queues."""
        async with self._store.connection() as conn:
            await ensure_queues(conn, topic_id, generation, queue_count)
            queues = await list_topic_queues(conn, topic_id)
            return await next_offsets(conn, [queue.queue_id for queue in queues])

    async def has_cursor(self, group_id: int, topic_id: int) -> bool:
        """Return whether the group has a place on any of the topic's queues."""
        async with self._store.connection() as conn:
            parameters = {"group_id": group_id, "topic_id": topic_id, "first_keeper": FIRST_KEEPER}
            cursor = await conn.execute(_HAS_CURSOR, parameters)
            return await cursor.fetchone() == (True,)

    async def keep_beginning(
        self, group_id: int, topic_id: int, generation: int, queue_count: int, version: int
    ) -> bool:
        """Keep the start of all the topic's queues for the group, until brokers know *version* of the configuration.

        Return whether it could be: not if the group has a place on any of them. Makes missing queues.
        """
        async with self._store.connection() as conn:
            await ensure_queues(conn, topic_id, generation, queue_count, lock_seconds=_LOCK_SECONDS)
            queue_ids = [queue.queue_id for queue in await list_topic_queues(conn, topic_id)]
            async with conn.transaction() as keeping:
                is_kept = await keep_beginning(conn, group_id, queue_ids, version)
                if not is_kept:
                    raise Rollback(keeping)
            return is_kept

    async def lane_owners(self) -> set[UUID]:
        """Return the brokers whose leases have not passed."""
        async with self._store.connection() as conn:
            cursor = await conn.execute(_LANE_OWNERS, {"first_keeper": FIRST_KEEPER})
            return {owner for (owner,) in await cursor.fetchall()}

    async def config_mark(self) -> tuple[UUID, int]:
        """Return the era and the version of the newest configuration that may have been reported active."""
        async with self._store.connection() as conn:
            return await read_mark(conn)

    async def raise_config_mark(self, version: int, lost: tuple[UUID, int] | None) -> None:
        """Let that be *version* at least; *lost*: what it is now, where the configuration does not reach so far."""
        async with self._store.transaction() as conn:
            await raise_mark(conn, version, None if lost is None else ConfigMark(*lost))


def _stands(queues: list[QueueRow], generation: int, count: int) -> bool:
    present = sum(1 for queue in queues if queue.generation == generation and queue.ordinal < count)
    return present == count and all(queue.sealed for queue in queues if queue.generation < generation)


async def _seal_older(conn: Connection, topic_id: int, generation: int) -> None:
    queues = await list_topic_queues(conn, topic_id)
    open_ids = sorted(queue.queue_id for queue in queues if queue.generation < generation and not queue.sealed)
    # Under its append lock: whoever appends next sees the seal, whoever appended before has committed.
    for queue_id in open_ids:
        await conn.execute(_LOCK, (QUEUE_LOCK_CLASS, queue_lock_key(queue_id)))
    await conn.execute(_SEAL, (open_ids,))
