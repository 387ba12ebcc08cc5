"""What a transaction relies on it says itself, whatever the database's defaults are, and leaves to nobody."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from msgbroker.server.cluster.announcements import Announcer
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from tests.support.appending import frame, message, new_publisher, open_appender
from tests.support.eventually import eventually
from tests.support.replicated_postgres import ReplicatedPostgres
from tests.support.rows import make_queue
from tests.support.standby import assert_waits, committing, store_all


async def test_what_no_standby_has_is_not_acknowledged_where_warnings_are_not_sent(
    synchronous: ReplicatedPostgres,
) -> None:
    with psycopg.connect(synchronous.primary_url, autocommit=True) as connection:
        connection.execute("ALTER DATABASE center SET client_min_messages = 'error'")
    async with MessageStore.open(synchronous.primary_url) as store:
        async with store.connection() as conn:
            queue_id = await make_queue(conn)
        async with open_appender(store) as appender:
            await appender.append([frame(new_publisher(), 1, [message(queue_id, "before")])])
            synchronous.take_standby_away()
            try:
                frames = [frame(new_publisher(), 1, [message(queue_id, "acknowledged")])]
                storing = asyncio.create_task(store_all(appender, frames))
                pid = await committing(synchronous)
                with psycopg.connect(synchronous.primary_url, autocommit=True) as connection:
                    # Committed here, and nowhere else.
                    connection.execute("SELECT pg_cancel_backend(%s)", (pid,))
                await assert_waits(storing)
            finally:
                # Whatever waits for the standby could not be closed.
                synchronous.standby.start()


async def test_telling_other_brokers_leaves_nothing_on_a_session_of_a_pooler(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Connection] = []
    connect = MessageStore.connect_dedicated

    async def connect_and_keep(store: MessageStore) -> Connection:
        opened.append(await connect(store))
        return opened[-1]

    monkeypatch.setattr(MessageStore, "connect_dedicated", connect_and_keep)
    stop = asyncio.Event()
    async with MessageStore.open(database_url, pooled=True) as store:
        announcer = Announcer(store)
        announcer.announce({1: 1})
        running = asyncio.create_task(announcer.run(stop))
        await eventually(lambda: opened and not announcer._pending)
        # Whoever is lent that session next by a pooler in transaction mode has this, too, and no word of it.
        row = await (await opened[0].execute("SHOW synchronous_commit")).fetchone()
        running.cancel()
        await asyncio.wait([running])
    assert row == ("on",)
