"""What the maintenance of the version before the archive did to an expired day, statement by statement.

The text is that of that version, and is not to follow the code: it stands for brokers that are running somewhere.
"""

from __future__ import annotations

from msgdb.log.partitions import DayPartition, day_bounds
from msgdb.postgres.connections import Connection

_LAST = """(
        SELECT m.queue_offset, m.stored_at FROM {table} AS m WHERE m.queue_id = {queue_id}{later}
        ORDER BY m.queue_offset DESC LIMIT 1
    )"""
_FIND_REACHING = f"""
SELECT q.queue_id, newer.queue_offset IS NOT NULL
FROM queue q
CROSS JOIN LATERAL {_LAST.format(table="{partition}", queue_id="q.queue_id", later="")} AS last
LEFT JOIN LATERAL
    {_LAST.format(table="message", queue_id="q.queue_id", later=" AND m.stored_at >= %(day_end)s")} AS newer ON true
WHERE last.queue_offset >= q.start_offset
"""
_TRY_LOCKS = """
SELECT w.queue_id FROM unnest(%(queue_ids)s::bigint[], %(keys)s::integer[]) AS w (queue_id, key)
WHERE pg_try_advisory_xact_lock(1297237585, w.key)
"""
_RAISE_STARTS = f"""
UPDATE queue q SET start_offset = last.queue_offset + 1
FROM unnest(%(queue_ids)s::bigint[]) AS w (queue_id)
CROSS JOIN LATERAL {_LAST.format(table="{partition}", queue_id="w.queue_id", later="")} AS last
WHERE q.queue_id = w.queue_id AND q.start_offset <= last.queue_offset
"""
_END_REDELIVERIES = """
WITH ending AS (
    SELECT group_id, member, queue_id, queue_offset FROM redelivery WHERE stored_at < %(day_end)s
    ORDER BY group_id, member, queue_id, queue_offset LIMIT 1000 FOR UPDATE SKIP LOCKED
), ended AS (
    DELETE FROM redelivery r USING ending e
    WHERE r.group_id = e.group_id AND r.member = e.member AND r.queue_id = e.queue_id
      AND r.queue_offset = e.queue_offset
    RETURNING r.*
)
SELECT count(*) FROM ended
"""
_MOVE_CURSORS = """
WITH behind AS (
    SELECT c.group_id, c.member, c.queue_id, q.start_offset
    FROM cursor c JOIN queue q ON q.queue_id = c.queue_id
    WHERE c.acked_offset < q.start_offset
    ORDER BY c.group_id, c.member, c.queue_id LIMIT 1000 FOR UPDATE OF c SKIP LOCKED
)
UPDATE cursor c
SET acked_offset = b.start_offset, acked_ranges = c.acked_ranges * int8multirange(int8range(b.start_offset, NULL))
FROM behind b
WHERE c.group_id = b.group_id AND c.member = b.member AND c.queue_id = b.queue_id
"""
_DETACH = "ALTER TABLE message DETACH PARTITION {partition} CONCURRENTLY"
_FINALIZE = "ALTER TABLE message DETACH PARTITION {partition} FINALIZE"
_DROP = "DROP TABLE IF EXISTS {partition}"


async def drop_as_before(conn: Connection, partition: DayPartition) -> None:
    """Do to a day of messages what that version did to it, in its order. Raises what the database says against it."""
    _, day_end = day_bounds(partition.day)
    find = _FIND_REACHING.format(partition=partition.name)
    reaching = await (await conn.execute(find.encode(), {"day_end": day_end})).fetchall()
    go_on = [queue_id for queue_id, goes_on in reaching if goes_on]
    end_here = [queue_id for queue_id, goes_on in reaching if not goes_on]
    async with conn.transaction():
        locked = await (await conn.execute(_TRY_LOCKS, {"queue_ids": end_here, "keys": end_here})).fetchall()
        raised = {"queue_ids": go_on + [row[0] for row in locked]}
        await conn.execute(_RAISE_STARTS.format(partition=partition.name).encode(), raised)
    await conn.execute(_END_REDELIVERIES, {"day_end": day_end})
    await conn.execute(_MOVE_CURSORS)
    if partition.is_detach_pending:
        await conn.execute(_FINALIZE.format(partition=partition.name).encode())
    elif partition.is_attached:
        await conn.execute(_DETACH.format(partition=partition.name).encode())
    await conn.execute(_DROP.format(partition=partition.name).encode())
