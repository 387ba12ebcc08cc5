"""Connections that are lost in the middle of an append: what is stored, once, and what the publisher hears."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from msgbroker.contract.errors import StoreUnavailableError
from msgdb.append_plan import AppendFrame, Stored
from msgdb.connections import Connection
from msgdb.store import MessageStore
from tests.integration.msgdb.appending import bodies, frame, message, new_publisher, open_appender, places
from tests.integration.msgdb.rows import make_queue

Fault = Callable[[Connection, Callable[[], Awaitable[Any]]], Awaitable[Any]]
_COMMIT = b"COMMIT"


async def lose_the_answer(connection: Connection, commit: Callable[[], Awaitable[Any]]) -> Any:
    """Commit, and lose the connection before anyone hears of it."""
    await commit()
    await connection.close()
    raise psycopg.OperationalError("the connection is lost")


async def die_before(connection: Connection, commit: Callable[[], Awaitable[Any]]) -> Any:
    """Have the server end the session before the COMMIT reaches it."""
    killer = await psycopg.AsyncConnection.connect(connection.info.dsn, autocommit=True)
    await killer.execute("SELECT pg_terminate_backend(%s, 5000)", (connection.info.backend_pid,))
    await killer.close()
    return await commit()


class Faulty:
    """Opens connections to the store; the next COMMITs meet a fault, one after the other."""

    def __init__(self, store: MessageStore, faults: list[Fault]) -> None:
        self._store = store
        self._faults = faults

    async def connect(self) -> Connection:
        """Open a connection."""
        connection = await self._store.connect_dedicated()
        execute = connection.execute

        async def execute_or_fail(query: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(query, bytes) and query.endswith(_COMMIT) and self._faults:
                return await self._faults.pop(0)(connection, lambda: execute(query, *args, **kwargs))
            return await execute(query, *args, **kwargs)

        connection.execute = execute_or_fail  # type: ignore[method-assign]
        return connection


@pytest.fixture
async def queue_id(conn: Connection) -> int:
    return await make_queue(conn)


async def test_a_commit_whose_answer_was_lost_is_found_and_answered_as_stored(
    store: MessageStore, conn: Connection, queue_id: int
) -> None:
    frames = [frame(new_publisher(), 1, [message(queue_id, str(n))]) for n in range(3)]
    async with open_appender(store, connect=Faulty(store, [lose_the_answer]).connect) as appender:
        results = await appender.append(frames)

    assert [places(result) for result in results] == [[(queue_id, n)] for n in range(3)]
    assert [isinstance(result, Stored) and result.duplicate for result in results] == [True] * 3
    assert await bodies(conn, queue_id) == ["0", "1", "2"]


async def test_a_session_that_died_before_its_commit_is_appended_again(
    store: MessageStore, conn: Connection, queue_id: int
) -> None:
    async with open_appender(store, connect=Faulty(store, [die_before]).connect) as appender:
        (result,) = await appender.append([frame(new_publisher(), 1, [message(queue_id, "a")])])

    assert isinstance(result, Stored)
    assert not result.duplicate
    assert await bodies(conn, queue_id) == ["a"]


@pytest.mark.parametrize("faults", [[lose_the_answer], [die_before]], ids=["answer lost", "died before"])
async def test_frames_without_a_publisher_are_stored_once_whatever_became_of_the_answer(
    store: MessageStore, conn: Connection, queue_id: int, faults: list[Fault]
) -> None:
    async with open_appender(store, connect=Faulty(store, list(faults)).connect) as appender:
        results = await appender.append([frame(b"", 0, [message(queue_id, str(n))]) for n in range(3)])
        results += await appender.append([frame(b"", 0, [message(queue_id, "3")])])

    assert [places(result) for result in results] == [[(queue_id, n)] for n in range(4)]
    assert await bodies(conn, queue_id) == ["0", "1", "2", "3"]


async def test_when_the_second_try_is_lost_too_the_publisher_may_send_again_through_another_broker(
    store: MessageStore, conn: Connection, queue_id: int
) -> None:
    publisher = new_publisher()

    def frames() -> list[AppendFrame]:
        return [frame(publisher, n, [message(queue_id, str(n))]) for n in (1, 2)]

    async with open_appender(store, connect=Faulty(store, [die_before, lose_the_answer]).connect) as appender:
        with pytest.raises(StoreUnavailableError):
            await appender.append(frames())
    async with open_appender(store) as another:
        results = await another.append([*frames(), frame(publisher, 3, [message(queue_id, "3")])])

    assert [isinstance(result, Stored) and result.duplicate for result in results] == [True, True, False]
    assert await bodies(conn, queue_id) == ["1", "2", "3"]


async def test_an_appender_goes_on_once_the_store_is_back(store: MessageStore, conn: Connection, queue_id: int) -> None:
    publisher = new_publisher()
    is_away = True

    async def connect() -> Connection:
        if is_away:
            raise psycopg.OperationalError("connection refused")
        return await store.connect_dedicated()

    async with open_appender(store, connect=connect) as appender:
        with pytest.raises(StoreUnavailableError):
            await appender.append([frame(publisher, 1, [message(queue_id, "a")])])
        is_away = False
        (result,) = await appender.append([frame(publisher, 1, [message(queue_id, "a")])])

    assert places(result) == [(queue_id, 0)]
    assert await bodies(conn, queue_id) == ["a"]


async def test_the_session_has_timeouts_that_free_the_locks_of_a_frozen_broker(
    store: MessageStore, conn: Connection, queue_id: int
) -> None:
    async with open_appender(store) as appender:
        await appender.append([frame(new_publisher(), 1, [message(queue_id)])])
        assert appender._connection is not None
        shown = [
            await (await appender._connection.execute(f"SHOW {name}")).fetchone()
            for name in (
                "statement_timeout",
                "idle_in_transaction_session_timeout",
                "lock_timeout",
                "synchronous_commit",
            )
        ]

    assert shown == [("2s",), ("2s",), ("1s",), ("on",)]
