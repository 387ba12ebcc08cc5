"""What a broker knows of a topic's queues, when others make and lose them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from confdb.routes import TopicKind, TopicRoute
from msgbroker.server.log.topic_queues import TopicQueues
from msgdb.log.queues import ensure_queues
from msgdb.store import MessageStore

TOPIC_ID = 7


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[MessageStore]:
    async with MessageStore.open(database_url) as store:
        yield store


@pytest.fixture
async def queues(store: MessageStore) -> TopicQueues:
    queues = TopicQueues(store)
    await queues.load()
    return queues


def route(generation: int, queue_count: int) -> TopicRoute:
    return TopicRoute(
        topic_id=TOPIC_ID,
        namespace="default",
        name="TP_TRADE",
        kind=TopicKind.NORMAL,
        queue_count=queue_count,
        generation=generation,
        body_bytes_max=8_192,
        is_open=False,
        is_closed=False,
        stress_refused=False,
        event_codes=frozenset(),
    )


async def test_queues_of_an_older_layout_that_others_made_are_known_with_the_new_one(
    store: MessageStore, queues: TopicQueues
) -> None:
    async with store.connection() as conn:
        older = await ensure_queues(conn, TOPIC_ID, 1, 2)

    layout = await queues.ensure(route(generation=2, queue_count=4))

    assert len(layout.queue_ids) == 4
    assert set(queues.queues_of(TOPIC_ID)) == {*layout.queue_ids, *(queue.queue_id for queue in older)}


async def test_queues_that_are_gone_are_made_again(store: MessageStore, queues: TopicQueues) -> None:
    lost = await queues.ensure(route(generation=1, queue_count=2))
    async with store.connection() as conn:
        await conn.execute("DELETE FROM queue")

    await queues.load()
    made = await queues.ensure(route(generation=1, queue_count=2))

    assert len(made.queue_ids) == 2
    assert not set(made.queue_ids) & set(lost.queue_ids)
    assert set(queues.queues_of(TOPIC_ID)) == set(made.queue_ids)
