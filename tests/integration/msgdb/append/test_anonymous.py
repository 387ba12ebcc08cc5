"""Frames without a publisher: a number they were given by an attempt that was rolled back says nothing later."""

from __future__ import annotations

import psycopg
import pytest

from msgdb.append import sql, transaction
from msgdb.append.plan import AppendFrame, Held, Stored
from msgdb.append.refused_rows import find_refused
from msgdb.log.queues import ensure_queues
from msgdb.postgres.connections import BlockingConnection, Connection
from msgdb.store import MessageStore
from tests.support.appending import bodies, frame, message, open_appender, places


async def test_a_frame_that_was_divided_and_then_held_is_not_taken_for_another_one(
    store: MessageStore, conn: Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_queue, free_queue = (queue.queue_id for queue in await ensure_queues(conn, 1, 1, 2))
    await conn.execute("ALTER TABLE message ADD CONSTRAINT only_good CHECK (event_code <> 'EC_BAD')")
    holder = psycopg.connect(database_url, autocommit=True)
    opened: list[BlockingConnection] = []

    def connect() -> BlockingConnection:
        opened.append(store.connect_blocking())
        return opened[-1]

    def hold_and_find(connection: BlockingConnection, the_frame: AppendFrame, settings: str) -> dict[int, str]:
        # Another broker takes the queue just when this one has rolled its first attempt back.
        holder.execute(sql.begin("", (), (held_queue,)).encode())
        return find_refused(connection, the_frame, settings)

    monkeypatch.setattr(transaction, "find_refused", hold_and_find)
    mixed = frame(b"", 0, [message(held_queue, "bad", event_code="EC_BAD"), message(held_queue, "good")])
    try:
        async with open_appender(store, connect=connect) as appender:
            (held,) = await appender.append([mixed])
            assert held == Held(held_queue)
            # It was number 1 for a while; this one is it now.
            (other,) = await appender.append([frame(b"", 0, [message(free_queue, "other")])])
            assert places(other) == [(free_queue, 0)]
            await conn.execute("SELECT pg_terminate_backend(%s, 5000)", (opened[-1].info.backend_pid,))
            holder.execute("ROLLBACK")
            (stored,) = await appender.append([mixed], around_held=True)
    finally:
        holder.close()

    assert isinstance(stored, Stored)
    assert places(stored) == [(0, 0), (held_queue, 0)]
    assert await bodies(conn, held_queue) == ["good"]
