"""Frames without a publisher are stored once, whatever breaks: also after their commit, while holders are looked at."""

from __future__ import annotations

import asyncio
import secrets

import psycopg
import pytest

from msgdb.append import held, sql
from msgdb.log.queues import ensure_queues
from msgdb.postgres.connections import BlockingConnection
from msgdb.store import MessageStore
from tests.support.appending import bodies, frame, message, open_appender


@pytest.mark.parametrize("connection_breaks", [False, True])
async def test_a_frame_that_was_stored_around_a_held_queue_is_not_stored_again(
    message_store: MessageStore, database_url: str, monkeypatch: pytest.MonkeyPatch, connection_breaks: bool
) -> None:
    async with message_store.connection() as conn:
        held_queue, free_queue = (queue.queue_id for queue in await ensure_queues(conn, 1, 1, 2))
    holder = psycopg.connect(database_url, autocommit=True)
    holder.execute(sql.begin("", (), (held_queue,)).encode())
    find = held._find
    looks = 0

    def break_and_find(connection: object, held: object) -> object:
        nonlocal looks
        looks += 1
        if looks == 1 and connection_breaks:
            # The server restarts, a pooler lets go, a network breaks: right behind a COMMIT that was answered.
            with psycopg.connect(database_url, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", (connection.info.backend_pid,))  # type: ignore[attr-defined]
        return find(connection, held)  # type: ignore[arg-type]

    monkeypatch.setattr(held, "_find", break_and_find)
    frames = [frame(b"", 0, [message(free_queue, "once")]), frame(b"", 0, [message(held_queue, "held")])]
    try:
        async with open_appender(message_store) as appender:
            await appender.append(frames)
            assert looks >= 1
    finally:
        holder.close()

    async with message_store.connection() as conn:
        assert await bodies(conn, free_queue) == ["once"]


async def test_a_holder_that_may_not_be_ended_has_nothing_stored_twice(
    message_store: MessageStore, database_url: str
) -> None:
    # An ordinary role that may look at statistics (pg_monitor, as recommended for monitoring), and a stuck session of
    # another role: the former credentials of a broker that froze before they were changed, or an operator's.
    async with message_store.connection() as conn:
        held_queue, free_queue = (queue.queue_id for queue in await ensure_queues(conn, 1, 1, 2))
        role = "app_" + secrets.token_hex(6)
        await conn.execute(f"CREATE ROLE {role}; GRANT pg_monitor TO {role}")
        await conn.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")

    def connect() -> BlockingConnection:
        connection = message_store.connect_blocking()
        connection.execute(f"SET ROLE {role}")
        return connection

    holder = psycopg.connect(database_url, autocommit=True)
    holder.execute(sql.begin("", (), (held_queue,)).encode())
    frames = [frame(b"", 0, [message(free_queue, "once")]), frame(b"", 0, [message(held_queue, "held")])]
    problems: list[str] = []
    try:
        await asyncio.sleep(2.0)
        async with open_appender(message_store, connect=connect) as appender:
            # As the committer does: together, and where that fails for an unknown reason, each by itself.
            for some in (frames, frames[:1], frames[1:]):
                try:
                    await appender.append(some)
                    if some is frames:
                        break
                except psycopg.Error as error:
                    problems.append(type(error).__name__)
    finally:
        holder.close()
        async with message_store.connection() as conn:
            await conn.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    async with message_store.connection() as conn:
        assert (await bodies(conn, free_queue), problems) == (["once"], [])
