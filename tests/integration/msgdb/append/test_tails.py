"""Offsets and numbers that must never start again: after resends, lost connections, and a log that lost its end."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta

import pytest

from msgdb.append.plan import AppendFrame, Held, Stored
from msgdb.locks import QUEUE_LOCK_CLASS, queue_lock_key
from msgdb.log.queues import ensure_queues
from msgdb.postgres.connections import BlockingConnection, Connection
from msgdb.store import MessageStore
from tests.support.append_faults import die_before, meet
from tests.support.appending import bodies, frame, message, new_publisher, open_appender, places

_LONGER_THAN_A_BOUND = timedelta(minutes=1)


@pytest.fixture
async def queues(conn: Connection) -> tuple[int, int]:
    first, second = await ensure_queues(conn, 1, 1, 2)
    return first.queue_id, second.queue_id


async def age(conn: Connection, queue_id: int) -> None:
    """Make the queue's messages older than what a bound allows for."""
    await conn.execute(
        "UPDATE message SET stored_at = stored_at - %s WHERE queue_id = %s", (_LONGER_THAN_A_BOUND, queue_id)
    )


async def test_a_resent_frame_beside_others_does_not_make_its_queue_begin_again(
    store: MessageStore, conn: Connection, queues: tuple[int, int]
) -> None:
    quiet, busy = queues
    publisher = new_publisher()
    async with open_appender(store) as appender:
        await appender.append([frame(publisher, 1, [message(quiet, "a")])])
        await age(conn, quiet)
        await appender.append(
            [frame(publisher, 1, [message(quiet, "a")]), frame(new_publisher(), 1, [message(busy, "b")])]
        )

        (result,) = await appender.append([frame(new_publisher(), 1, [message(quiet, "c")])])

    assert places(result) == [(quiet, 1)]
    assert await bodies(conn, quiet) == ["a", "c"]


async def test_a_queue_that_lost_its_end_goes_on_behind_what_is_left(
    store: MessageStore, conn: Connection, queues: tuple[int, int]
) -> None:
    queue_id = queues[0]
    async with open_appender(store) as appender:
        await appender.append([frame(new_publisher(), 1, [message(queue_id, "a")])])
        await age(conn, queue_id)
        await appender.append([frame(new_publisher(), 1, [message(queue_id, "b")])])
        # As after a promotion of a standby that had not received it.
        await conn.execute("DELETE FROM message WHERE queue_id = %s AND queue_offset = 1", (queue_id,))

        (result,) = await appender.append([frame(new_publisher(), 1, [message(queue_id, "c")])])

    assert places(result) == [(queue_id, 1)]


async def test_a_lost_connection_leaves_no_bound_behind(
    store: MessageStore, conn: Connection, queues: tuple[int, int]
) -> None:
    queue_id = queues[0]
    async with open_appender(store) as appender:
        await appender.append([frame(new_publisher(), 1, [message(queue_id, "a")])])
        await conn.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        await age(conn, queue_id)

        (result,) = await appender.append([frame(new_publisher(), 1, [message(queue_id, "b")])])

    assert places(result) == [(queue_id, 1)]


def anonymous(queue_id: int, body: str) -> AppendFrame:
    return frame(b"", 0, [message(queue_id, body)])


async def test_an_anonymous_frame_that_waits_after_a_lost_commit_is_not_taken_for_another(
    store: MessageStore, conn: Connection, queues: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    held_queue, free_queue = queues
    meet(monkeypatch, die_before)
    with closing(store.connect_blocking()) as holder:
        connections = 0

        def connect() -> BlockingConnection:
            nonlocal connections
            connections += 1
            if connections == 2:
                # Another broker takes the queue as soon as the dead session lets go of it.
                holder.execute("BEGIN")
                holder.execute("SELECT pg_advisory_xact_lock(%s, %s)", (QUEUE_LOCK_CLASS, queue_lock_key(held_queue)))
            return store.connect_blocking()

        async with open_appender(store, connect=connect) as appender:
            waiting, free = anonymous(held_queue, "x"), anonymous(free_queue, "y")
            first, second = await appender.append([waiting, free])
            assert isinstance(first, Held)
            assert places(second) == [(free_queue, 0)]
            holder.execute("ROLLBACK")

            (result,) = await appender.append([waiting], around_held=True)

    assert isinstance(result, Stored)
    assert not result.duplicate
    assert await bodies(conn, held_queue) == ["x"]
    assert await bodies(conn, free_queue) == ["y"]


async def test_a_poisoned_message_is_refused_alone_around_held_queues_too(
    store: MessageStore, conn: Connection, queues: tuple[int, int]
) -> None:
    await conn.execute("ALTER TABLE message ADD CONSTRAINT only_good CHECK (event_code <> 'EC_BAD')")
    poisoned = [message(queues[0], "a"), message(queues[0], "b", event_code="EC_BAD"), message(queues[0], "c")]
    async with open_appender(store) as appender:
        (result,) = await appender.append([frame(new_publisher(), 1, poisoned)], around_held=True)

    assert places(result) == [(queues[0], 0), (0, 0), (queues[0], 1)]
    assert await bodies(conn, queues[0]) == ["a", "c"]


async def test_a_missing_day_is_made_around_held_queues_too(
    store: MessageStore, conn: Connection, queues: tuple[int, int]
) -> None:
    rows = await conn.execute("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'message'::regclass")
    for (partition,) in await rows.fetchall():
        await conn.execute(f"DROP TABLE {partition}".encode())

    async with open_appender(store) as appender:
        (result,) = await appender.append([frame(new_publisher(), 1, [message(queues[0])])], around_held=True)

    assert places(result) == [(queues[0], 0)]
