"""Queues: made once, sealed when the layout changes, read for their tails."""

from __future__ import annotations

import asyncio

from msgdb.lanes.leases import claim
from msgdb.locks import QUEUE_LOCK_CLASS, queue_lock_key
from msgdb.log.queues import QueueTailReader, ensure_queues, list_queues, list_topic_queues
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from tests.support.rows import GROUP, OWNER, lanes_to_claim, put_messages
from tests.support.waiting import until_someone_waits_for_a_lock


async def test_queues_are_made_once(conn: Connection) -> None:
    first = await ensure_queues(conn, 1, 1, 4)
    again = await ensure_queues(conn, 1, 1, 4)

    assert [queue.ordinal for queue in first] == [0, 1, 2, 3]
    assert again == first
    assert await list_queues(conn) == first


async def test_brokers_that_ask_at_the_same_time_get_the_same_queues(store: MessageStore) -> None:
    async def ask() -> list[int]:
        async with store.connection() as conn:
            return [queue.queue_id for queue in await ensure_queues(conn, 1, 1, 4)]

    answers = await asyncio.gather(*(ask() for _ in range(4)))

    assert all(answer == answers[0] for answer in answers)
    assert len(answers[0]) == 4


async def test_a_newer_layout_seals_the_older_one(conn: Connection) -> None:
    await ensure_queues(conn, 1, 1, 2)
    newer = await ensure_queues(conn, 1, 2, 3)

    assert [queue.sealed for queue in newer] == [False, False, False]
    assert [queue.sealed for queue in await list_topic_queues(conn, 1)] == [True, True, False, False, False]


async def test_a_layout_asked_for_after_it_was_replaced_is_born_sealed(conn: Connection) -> None:
    await ensure_queues(conn, 1, 2, 2)
    late = await ensure_queues(conn, 1, 1, 2)

    assert [queue.sealed for queue in late] == [True, True]
    assert [queue.sealed for queue in await ensure_queues(conn, 1, 2, 2)] == [False, False]


async def test_a_queue_is_not_sealed_while_an_append_holds_it(store: MessageStore) -> None:
    async with store.connection() as conn:
        (queue,) = await ensure_queues(conn, 1, 1, 1)

    async def change_layout() -> None:
        async with store.connection() as conn:
            await ensure_queues(conn, 1, 2, 1)

    async with store.connection() as observer:
        async with store.transaction() as appending:
            await appending.execute(
                "SELECT pg_advisory_xact_lock(%s, %s)", (QUEUE_LOCK_CLASS, queue_lock_key(queue.queue_id))
            )
            change = asyncio.create_task(change_layout())
            await until_someone_waits_for_a_lock(observer)

            assert [row.sealed for row in await list_topic_queues(observer, 1)] == [False]

        await change
        assert [row.sealed for row in await list_topic_queues(observer, 1)] == [True, False]


async def test_tails_are_those_of_all_layouts(store: MessageStore) -> None:
    async with store.connection() as conn:
        (old,) = await ensure_queues(conn, 1, 1, 1)
        await put_messages(conn, old.queue_id, range(5))

    tails = await QueueTailReader(store).tails(1, 2, 2)

    async with store.connection() as conn:
        queues = await list_topic_queues(conn, 1)
    assert tails == {queues[0].queue_id: 5, queues[1].queue_id: 0, queues[2].queue_id: 0}


async def test_a_group_has_a_cursor_on_a_topic_once_it_has_claimed_any_of_its_queues(store: MessageStore) -> None:
    tails = QueueTailReader(store)
    async with store.connection() as conn:
        (old,) = await ensure_queues(conn, 1, 1, 1)
        await ensure_queues(conn, 1, 2, 2)
        await ensure_queues(conn, 2, 1, 1)
        assert not await tails.has_cursor(GROUP, 1)
        await claim(conn, OWNER, lanes_to_claim([old.queue_id]), 10)

    assert await tails.has_cursor(GROUP, 1)
    assert not await tails.has_cursor(GROUP, 2)
    assert not await tails.has_cursor(GROUP + 1, 1)
