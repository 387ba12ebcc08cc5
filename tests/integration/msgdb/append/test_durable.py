"""A synchronous standby that is away: nothing is acknowledged before it has it, whoever asks, however often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from msgdb.append.appender import Appender
from msgdb.append.plan import Stored
from msgdb.store import MessageStore
from tests.support.appending import bodies, frame, message, new_publisher, open_appender
from tests.support.replicated_postgres import ReplicatedPostgres
from tests.support.rows import make_queue
from tests.support.standby import assert_waits, committing, store_all


@pytest.fixture
async def away_store(synchronous: ReplicatedPostgres) -> AsyncIterator[MessageStore]:
    """Return a store whose synchronous standby is away."""
    async with MessageStore.open(synchronous.primary_url) as store:
        yield store


@pytest.fixture
async def queue_id(away_store: MessageStore) -> int:
    async with away_store.connection() as conn:
        return await make_queue(conn)


@pytest.fixture
async def appender(away_store: MessageStore, queue_id: int, synchronous: ReplicatedPostgres) -> AsyncIterator[Appender]:
    """Return an appender that has been at work, just before the standby went away."""
    async with open_appender(away_store) as appender:
        await appender.append([frame(new_publisher(), 1, [message(queue_id, "before")])])
        synchronous.take_standby_away()
        yield appender
        # Whatever waits for the standby could not be closed.
        synchronous.standby.start()


async def test_a_commit_that_waits_for_its_standby_is_not_ended_by_another_broker(
    away_store: MessageStore, appender: Appender, queue_id: int, synchronous: ReplicatedPostgres
) -> None:
    first = asyncio.create_task(store_all(appender, [frame(new_publisher(), 1, [message(queue_id, "a")])]))
    pid = await committing(synchronous)
    async with open_appender(away_store) as another:
        second = asyncio.create_task(store_all(another, [frame(new_publisher(), 1, [message(queue_id, "b")])]))
        await assert_waits(first, second)
        assert await committing(synchronous) == pid, "its session has been ended"

        synchronous.bring_standby_back()
        results = [*await first, *await second]

    assert all(isinstance(result, Stored) and not result.duplicate for result in results)
    async with away_store.connection() as conn:
        assert await bodies(conn, queue_id) == ["before", "a", "b"]


@pytest.mark.parametrize("end", ["pg_terminate_backend", "pg_cancel_backend"])
async def test_a_commit_whose_wait_somebody_ended_is_not_acknowledged_before_the_standby_has_it(
    away_store: MessageStore, appender: Appender, queue_id: int, synchronous: ReplicatedPostgres, end: str
) -> None:
    storing = asyncio.create_task(store_all(appender, [frame(new_publisher(), 1, [message(queue_id, "a")])]))
    pid = await committing(synchronous)
    with psycopg.connect(synchronous.primary_url, autocommit=True) as connection:
        # Committed here, and nowhere else.
        connection.execute(f"SELECT {end}(%s)", (pid,))
    await assert_waits(storing)

    synchronous.bring_standby_back()
    (result,) = await storing
    assert isinstance(result, Stored)
    async with away_store.connection() as conn:
        assert await bodies(conn, queue_id) == ["before", "a"]


async def test_a_frame_that_another_broker_finds_stored_is_acknowledged_when_the_standby_has_it(
    away_store: MessageStore, appender: Appender, queue_id: int, synchronous: ReplicatedPostgres
) -> None:
    publisher = new_publisher()
    storing = asyncio.create_task(store_all(appender, [frame(publisher, 1, [message(queue_id, "a")])]))
    pid = await committing(synchronous)
    async with open_appender(away_store) as another:
        with psycopg.connect(synchronous.primary_url, autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
        again = asyncio.create_task(store_all(another, [frame(publisher, 1, [message(queue_id, "a")])]))
        await assert_waits(storing, again)

        synchronous.bring_standby_back()
        results = [*await again, *await storing]

    assert all(isinstance(result, Stored) and result.duplicate for result in results)
    async with away_store.connection() as conn:
        assert await bodies(conn, queue_id) == ["before", "a"]
