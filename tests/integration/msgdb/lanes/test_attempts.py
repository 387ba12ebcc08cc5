"""How many messages of a group wait for which attempt."""

from __future__ import annotations

from msgdb.lanes.attempts import count_by_attempt
from msgdb.lanes.leases import claim
from msgdb.store import MessageStore
from tests.support.rows import GROUP, OWNER, lanes_to_claim, make_queue

_WAITING = """
INSERT INTO redelivery (group_id, member, queue_id, queue_offset, stored_at, attempt, due_at, shelved_by)
SELECT %s, '', %s, o, now(), %s, now(), %s FROM generate_series(%s::bigint, %s::bigint) o
"""


async def test_what_waits_is_counted_by_the_attempt_that_comes_next_and_what_is_shelved_is_not(
    store: MessageStore,
) -> None:
    async with store.connection() as conn:
        queues = [await make_queue(conn, topic_id) for topic_id in (1, 2)]
        await claim(conn, OWNER, lanes_to_claim(queues), 30.0)
        for queue_id, attempt, shelved_by, first, last in (
            (queues[0], 2, None, 0, 2),
            (queues[0], 3, None, 3, 3),
            (queues[1], 2, None, 0, 1),
            (queues[1], 1, "7", 2, 9),
        ):
            await conn.execute(_WAITING, (GROUP, queue_id, attempt, shelved_by, first, last))

        assert await count_by_attempt(conn, GROUP) == {2: 5, 3: 1}
        assert await count_by_attempt(conn, GROUP + 1) == {}
