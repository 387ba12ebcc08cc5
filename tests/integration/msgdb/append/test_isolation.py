"""A database whose defaults are other than ours: what a transaction relies on, it says itself."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from uuid import UUID

import psycopg
import pytest

from msgdb.lanes.leases import claim, renew
from msgdb.lanes.records import LaneCheckpoint, LaneEpoch
from msgdb.log.queues import ensure_queues
from msgdb.store import MessageStore, SessionLimits
from tests.support.appending import bodies, frame, message, new_publisher, open_appender, places
from tests.support.rows import GROUP_NAMES, OWNER, lanes_to_claim, make_queue, persist

LEVELS = ["repeatable read", "serializable"]


@pytest.fixture(params=LEVELS)
async def strict_store(database_url: str, request: pytest.FixtureRequest) -> AsyncIterator[MessageStore]:
    """Return a store in a database with another isolation level by default."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            f"ALTER DATABASE {connection.info.dbname} SET default_transaction_isolation = '{request.param}'"
        )
    async with MessageStore.open(database_url, limits=SessionLimits()) as store:
        yield store


async def test_offsets_are_gapless_over_brokers_at_any_default_isolation(strict_store: MessageStore) -> None:
    async with strict_store.connection() as conn:
        queue_id = await make_queue(conn)
    async with open_appender(strict_store) as one, open_appender(strict_store) as other:
        publishers = [new_publisher(), new_publisher()]
        results = []
        for sequence in range(1, 31):
            results += await asyncio.gather(
                *(
                    appender.append([frame(publisher, sequence, [message(queue_id)])])
                    for appender, publisher in zip((one, other), publishers, strict=True)
                )
            )

    offsets = sorted(places(result)[0][1] for (result,) in results)
    assert offsets == list(range(60))
    async with strict_store.connection() as conn:
        assert len(await bodies(conn, queue_id)) == 60


async def test_those_who_make_the_same_queues_at_once_agree_at_any_default_isolation(
    strict_store: MessageStore,
) -> None:
    async def make() -> list[int]:
        async with strict_store.connection() as conn:
            return [queue.queue_id for queue in await ensure_queues(conn, 7, 1, 4)]

    made = await asyncio.gather(*(make() for _ in range(5)))

    assert all(queue_ids == made[0] for queue_ids in made)


async def test_lanes_are_claimed_and_moved_on_beside_each_other_at_any_default_isolation(
    strict_store: MessageStore,
) -> None:
    async with strict_store.connection() as conn:
        queue_ids = [queue.queue_id for queue in await ensure_queues(conn, 1, 1, 8)]
    owners = [OWNER, UUID(bytes=secrets.token_bytes(16))]

    async def serve(owner: UUID) -> int:
        async with strict_store.connection() as conn:
            claimed = await claim(conn, owner, lanes_to_claim(queue_ids), 60.0)
            for acked_offset in range(10):
                owned = [LaneEpoch(lane.key, lane.epoch) for lane in claimed]
                assert not (await renew(conn, owner, owned, 60.0)).lost
                marks = [LaneCheckpoint(lane.key, lane.epoch, acked_offset, []) for lane in claimed]
                await persist(conn, owner, marks, GROUP_NAMES)
            return len(claimed)

    assert sum(await asyncio.gather(*map(serve, owners))) == len(queue_ids)
