"""The start of a topic, kept for a group: for those who know the version it is kept for, and for a while only."""

from __future__ import annotations

import psycopg

from msgdb.lanes.leases import claim
from msgdb.log.beginnings import KEPT_SECONDS
from msgdb.log.queues import QueueTailReader, ensure_queues, list_topic_queues
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from tests.support.rows import GROUP, OWNER, lanes_to_claim


async def queue_ids(conn: Connection) -> list[int]:
    return [queue.queue_id for queue in await list_topic_queues(conn, 1)]


async def test_it_is_claimed_from_the_start_by_those_who_know_its_version(store: MessageStore) -> None:
    assert await QueueTailReader(store).keep_beginning(GROUP, 1, 1, 2, version=7)

    async with store.connection() as conn:
        wanted = lanes_to_claim(await queue_ids(conn), initial_offset=5)
        assert await claim(conn, OWNER, wanted, 60, config_version=6) == []
        claimed = await claim(conn, OWNER, wanted, 60, config_version=7)

    assert [lane.acked_offset for lane in claimed] == [0, 0]


async def test_after_a_while_everybody_may_claim_it(store: MessageStore, database_url: str) -> None:
    assert await QueueTailReader(store).keep_beginning(GROUP, 1, 1, 1, version=7)
    with psycopg.connect(database_url) as connection:
        connection.execute(f"UPDATE cursor SET lease_until = lease_until - interval '{KEPT_SECONDS} seconds'")

    async with store.connection() as conn:
        assert len(await claim(conn, OWNER, lanes_to_claim(await queue_ids(conn)), 60)) == 1


async def test_the_later_version_keeps_it(store: MessageStore) -> None:
    tails = QueueTailReader(store)
    assert await tails.keep_beginning(GROUP, 1, 1, 1, version=7)
    assert await tails.keep_beginning(GROUP, 1, 1, 1, version=8)

    async with store.connection() as conn:
        wanted = lanes_to_claim(await queue_ids(conn))
        assert await claim(conn, OWNER, wanted, 60, config_version=7) == []
        assert len(await claim(conn, OWNER, wanted, 60, config_version=8)) == 1


async def test_it_is_no_place_and_nobody_delivers_by_it(store: MessageStore) -> None:
    tails = QueueTailReader(store)
    await tails.keep_beginning(GROUP, 1, 1, 1, version=7)

    assert not await tails.has_cursor(GROUP, 1)
    assert await tails.lane_owners() == set()


async def test_it_is_not_kept_where_the_group_has_a_place_on_any_queue(store: MessageStore) -> None:
    tails = QueueTailReader(store)
    async with store.connection() as conn:
        first, _ = await ensure_queues(conn, 1, 1, 2)
        await claim(conn, OWNER, lanes_to_claim([first.queue_id]), 60)

    assert not await tails.keep_beginning(GROUP, 1, 1, 2, version=7)

    async with store.connection() as conn:
        cursors = await (await conn.execute("SELECT queue_id, owner FROM cursor")).fetchall()
    assert cursors == [(first.queue_id, OWNER)]
