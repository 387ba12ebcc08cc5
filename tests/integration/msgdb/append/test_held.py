"""A broker that freezes while it holds append locks: what the others can do meanwhile, and how long it lasts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest
from structlog.testing import capture_logs

from msgdb.append import sql
from msgdb.append.appender import AppendConfig, Appender, NotTriedError
from msgdb.append.copy_rows import SIGNATURE
from msgdb.append.plan import AppendFrame, FrameResult, Held, Stored
from msgdb.log.queues import ensure_queues
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from tests.support.appending import bodies, frame, message, new_publisher, open_appender, places

_HELD_UP_SECONDS_MAX = 3.0


@pytest.fixture
async def queues(conn: Connection) -> tuple[int, int]:
    first, second = await ensure_queues(conn, 1, 1, 2)
    return first.queue_id, second.queue_id


@pytest.fixture
async def appender(store: MessageStore) -> AsyncIterator[Appender]:
    async with open_appender(store) as appender:
        # A broker that has been at work: its connection stands.
        await appender.append([])
        yield appender


@asynccontextmanager
async def holder(
    store: MessageStore, *, publishers: tuple[bytes, ...] = (), queues: tuple[int, ...] = ()
) -> AsyncIterator[Connection]:
    """Hold the append locks of these in an open transaction, as a frozen broker does."""
    connection = await store.connect_dedicated()
    try:
        await connection.execute(sql.begin("", publishers, queues).encode())
        yield connection
    finally:
        await connection.close()


async def store_all(
    appender: Appender, frames: list[AppendFrame], *, waits: bool = False
) -> tuple[list[FrameResult], float]:
    """Append until nothing is held, as the committer does; return the results, and how long the last one took.

    *waits*: stands in line each time, instead of looking whether it is free.
    """
    started_at = time.monotonic()
    results = await appender.append(frames)
    while held := [index for index, result in enumerate(results) if isinstance(result, Held)]:
        assert time.monotonic() - started_at < 20
        again = await appender.append([frames[index] for index in held], around_held=not waits)
        for index, result in zip(held, again, strict=True):
            results[index] = result
    return results, time.monotonic() - started_at


async def test_while_a_queue_is_held_the_others_are_stored(
    store: MessageStore, conn: Connection, appender: Appender, queues: tuple[int, int]
) -> None:
    held_queue, free_queue = queues
    frames = [
        frame(new_publisher(), 1, [message(free_queue, "free")]),
        frame(new_publisher(), 1, [message(held_queue, "held")]),
        frame(new_publisher(), 1, [message(free_queue, "free, too")]),
    ]
    async with holder(store, queues=(held_queue,)):
        started_at = time.monotonic()
        results = await appender.append(frames)
        again_at = time.monotonic()
        more = await appender.append([frames[1], frame(new_publisher(), 1, [message(free_queue)])], around_held=True)

        assert results[1] == Held(held_queue)
        assert [places(results[0]), places(results[2])] == [[(free_queue, 0)], [(free_queue, 1)]]
        assert again_at - started_at < 2
        assert more[0] == Held(held_queue)
        assert places(more[1]) == [(free_queue, 2)]
        # Around what is known to be held nobody waits.
        assert time.monotonic() - again_at < 0.9


async def test_a_holder_that_is_idle_in_its_transaction_is_ended(
    store: MessageStore, conn: Connection, appender: Appender, queues: tuple[int, int]
) -> None:
    async with holder(store, queues=queues[:1]) as frozen:
        (result,), seconds = await store_all(appender, [frame(new_publisher(), 1, [message(queues[0], "a")])])

        assert places(result) == [(queues[0], 0)]
        assert seconds < _HELD_UP_SECONDS_MAX
        with pytest.raises(psycopg.OperationalError):
            await frozen.execute("COMMIT")
    assert await bodies(conn, queues[0]) == ["a"]


async def test_a_holder_in_the_middle_of_its_copy_is_ended(
    store: MessageStore, conn: Connection, appender: Appender, queues: tuple[int, int]
) -> None:
    frames = [frame(new_publisher(), 1, [message(queue_id, "a")]) for queue_id in queues]
    async with holder(store, queues=queues) as frozen:
        # No timeout of the server's ends it here: it waits for data, not for a statement.
        await frozen.execute("SET statement_timeout = '2s'; SET idle_in_transaction_session_timeout = '2s'")
        cursor = frozen.cursor()
        copying = cursor.copy(sql.COPY_MESSAGES)
        copy = await copying.__aenter__()
        await copy.write(SIGNATURE)

        results, seconds = await store_all(appender, frames)

        with pytest.raises(psycopg.OperationalError):
            await copying.__aexit__(None, None, None)

    assert [places(result) for result in results] == [[(queues[0], 0)], [(queues[1], 0)]]
    assert seconds < _HELD_UP_SECONDS_MAX


async def test_a_holder_that_is_only_slow_is_left_alone(
    store: MessageStore, conn: Connection, appender: Appender, queues: tuple[int, int]
) -> None:
    the_frame = frame(new_publisher(), 1, [message(queues[0], "a")])
    async with holder(store, queues=queues[:1]) as slow:
        (result,) = await appender.append([the_frame])
        assert result == Held(queues[0])
        await slow.execute("COMMIT")

    (result,) = await appender.append([the_frame], around_held=True)
    assert places(result) == [(queues[0], 0)]


async def test_what_a_held_publisher_sent_keeps_its_order_while_others_are_stored(
    store: MessageStore, conn: Connection, appender: Appender, queues: tuple[int, int]
) -> None:
    publisher = new_publisher()
    held_queue, free_queue = queues
    frames = [
        frame(publisher, 1, [message(held_queue, "1")]),
        frame(publisher, 2, [message(free_queue, "2")]),
        frame(new_publisher(), 1, [message(free_queue, "other")]),
    ]
    async with holder(store, queues=(held_queue,)):
        results = await appender.append(frames)

        # Its second frame could be stored where it goes; but not before its first.
        assert [isinstance(result, Held) for result in results] == [True, True, False]
        results, _ = await store_all(appender, frames[:2])

    assert all(isinstance(result, Stored) for result in results)
    assert await bodies(conn, free_queue) == ["other", "2"]


async def test_a_frame_that_another_broker_is_storing_right_now_is_waited_for(
    store: MessageStore, conn: Connection, appender: Appender, queues: tuple[int, int]
) -> None:
    publisher = new_publisher()
    async with holder(store, publishers=(publisher,)):
        results = await appender.append(
            [frame(publisher, 1, [message(queues[0], "1")]), frame(new_publisher(), 1, [message(queues[0], "other")])]
        )

        assert [isinstance(result, Held) for result in results] == [True, False]
        (result,), seconds = await store_all(appender, [frame(publisher, 1, [message(queues[0], "1")])])

    assert places(result) == [(queues[0], 1)]
    assert seconds < _HELD_UP_SECONDS_MAX


async def test_what_follows_a_held_frame_does_not_overtake_it(
    store: MessageStore, conn: Connection, appender: Appender, queues: tuple[int, int]
) -> None:
    held_queue, free_queue = queues
    publisher = new_publisher()
    async with holder(store, queues=(held_queue,)):
        first, second = await asyncio.gather(
            appender.append([frame(publisher, 1, [message(held_queue, "a")])]),
            appender.append([frame(publisher, 2, [message(free_queue, "b")])], follows=True),
            return_exceptions=True,
        )
    assert isinstance(first, list)
    assert isinstance(first[0], Held)
    assert isinstance(second, NotTriedError)

    frames = [frame(publisher, 1, [message(held_queue, "a")]), frame(publisher, 2, [message(free_queue, "b")])]
    results, _ = await store_all(appender, frames)
    assert [places(result) for result in results] == [[(held_queue, 0)], [(free_queue, 0)]]
    (after,) = await appender.append([frame(publisher, 3, [message(free_queue, "c")])], follows=True)
    assert places(after) == [(free_queue, 1)]


async def test_brokers_whose_commits_are_slow_do_not_end_each_other(
    store: MessageStore, conn: Connection, queues: tuple[int, int]
) -> None:
    # Longer than any patience: a slow disk, a standby far away.
    await conn.execute(
        "CREATE FUNCTION be_slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1); RETURN NULL; END'"
    )
    await conn.execute(
        "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON publisher_frame DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION be_slow()"
    )
    config = AppendConfig(timeout_seconds=0.5, lock_timeout_seconds=0.4, held_seconds_max=0.5)

    async def publish(appender: Appender) -> int:
        publisher = new_publisher()
        for sequence in range(1, 4):
            await store_all(appender, [frame(publisher, sequence, [message(queues[0], "a")])], waits=True)
        return 3

    with capture_logs() as logs:
        async with open_appender(store, config) as one, open_appender(store, config) as other:
            started_at = time.monotonic()
            assert [*await asyncio.gather(publish(one), publish(other))] == [3, 3]

    # One after the other, and nobody's work was for nothing.
    assert time.monotonic() - started_at < 12
    assert [entry for entry in logs if entry["event"] in {"append.holder_ended", "append.connection_lost"}] == []
    assert len(await bodies(conn, queues[0])) == 6


async def test_a_copy_that_goes_on_slowly_is_left_alone(
    store: MessageStore, conn: Connection, appender: Appender, queues: tuple[int, int]
) -> None:
    rest = SIGNATURE + b"\xff\xff"
    async with holder(store, queues=queues[:1]) as slow:
        storing = asyncio.create_task(store_all(appender, [frame(new_publisher(), 1, [message(queues[0], "a")])]))
        async with slow.cursor().copy(sql.COPY_MESSAGES) as copy:
            for byte in rest:
                # A byte at a time, and each in time.
                await copy.write(bytes((byte,)))
                slow.pgconn.flush()
                done, _ = await asyncio.wait([storing], timeout=0.2)
                assert not done
        await slow.execute("COMMIT")
        (result,), _ = await storing

    assert places(result) == [(queues[0], 0)]


async def test_waits_for_several_locks_have_one_budget(store: MessageStore, conn: Connection) -> None:
    first, second, free = (queue.queue_id for queue in await ensure_queues(conn, 2, 1, 3))
    frames = [frame(new_publisher(), 1, [message(queue_id, "a")]) for queue_id in (first, second, free)]
    # Each wait is shorter than a lock's patience, both together are longer than a statement's.
    config = AppendConfig(timeout_seconds=1.0, lock_timeout_seconds=0.8)
    with capture_logs() as logs:
        async with open_appender(store, config) as appender, holder(store, queues=(second,)):
            async with holder(store, queues=(first,)):
                storing = asyncio.create_task(appender.append(frames))
                await asyncio.wait([storing], timeout=0.6)
            results = await storing

    assert [isinstance(result, Held) for result in results] == [False, True, False], results
    assert [entry for entry in logs if entry["event"] == "append.connection_lost"] == []
