"""Connections that are lost in the middle of an append: what is stored, once, and what the publisher hears."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import psycopg
import pytest
from psycopg.pq.abc import PGresult

from msgbroker.contract.errors import StoreUnavailableError
from msgdb.append import transaction
from msgdb.append.appender import LayoutChangedError
from msgdb.append.plan import AppendFrame, Stored
from msgdb.log.queues import ensure_queues
from msgdb.postgres.connections import BlockingConnection, Connection
from msgdb.postgres.libpq import execute
from msgdb.store import MessageStore
from tests.support.append_faults import Fault, Write, _end_session, die_before, meet
from tests.support.appending import bodies, frame, message, new_publisher, open_appender, places
from tests.support.rows import make_queue


def lose_the_answer(connection: BlockingConnection, write: Write, data: Iterable[bytes]) -> None:
    """Commit, and lose the connection before anyone hears of it."""
    write(data)
    connection.close()
    raise psycopg.OperationalError("the connection is lost")


def die_within(connection: BlockingConnection, write: Write, data: Iterable[bytes]) -> None:
    """Have the server end the session when it has got the rows, and not the end of them."""

    def ending() -> Iterator[bytes]:
        yield from data
        _end_session(connection)

    write(ending())


@pytest.fixture
async def queue_id(conn: Connection) -> int:
    return await make_queue(conn)


async def test_a_commit_whose_answer_was_lost_is_found_and_answered_as_stored(
    store: MessageStore, conn: Connection, queue_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    meet(monkeypatch, lose_the_answer)
    frames = [frame(new_publisher(), 1, [message(queue_id, str(n))]) for n in range(3)]
    async with open_appender(store) as appender:
        results = await appender.append(frames)

    assert [places(result) for result in results] == [[(queue_id, n)] for n in range(3)]
    assert [isinstance(result, Stored) and result.duplicate for result in results] == [True] * 3
    assert await bodies(conn, queue_id) == ["0", "1", "2"]


@pytest.mark.parametrize("fault", [die_before, die_within])
async def test_a_session_that_died_before_its_commit_is_appended_again(
    store: MessageStore, conn: Connection, queue_id: int, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    meet(monkeypatch, fault)
    async with open_appender(store) as appender:
        (result,) = await appender.append([frame(new_publisher(), 1, [message(queue_id, "a")])])

    assert isinstance(result, Stored)
    assert not result.duplicate
    assert await bodies(conn, queue_id) == ["a"]


@pytest.mark.parametrize("fault", [lose_the_answer, die_before, die_within])
async def test_frames_without_a_publisher_are_stored_once_whatever_became_of_the_answer(
    store: MessageStore, conn: Connection, queue_id: int, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    meet(monkeypatch, fault)
    async with open_appender(store) as appender:
        results = await appender.append([frame(b"", 0, [message(queue_id, str(n))]) for n in range(3)])
        results += await appender.append([frame(b"", 0, [message(queue_id, "3")])])

    assert [places(result) for result in results] == [[(queue_id, n)] for n in range(4)]
    assert await bodies(conn, queue_id) == ["0", "1", "2", "3"]


async def test_when_the_second_try_is_lost_too_the_publisher_may_send_again_through_another_broker(
    store: MessageStore, conn: Connection, queue_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    meet(monkeypatch, die_before, lose_the_answer)
    publisher = new_publisher()

    def frames() -> list[AppendFrame]:
        return [frame(publisher, n, [message(queue_id, str(n))]) for n in (1, 2)]

    async with open_appender(store) as appender:
        with pytest.raises(StoreUnavailableError):
            await appender.append(frames())
    async with open_appender(store) as another:
        results = await another.append([*frames(), frame(publisher, 3, [message(queue_id, "3")])])

    assert [isinstance(result, Stored) and result.duplicate for result in results] == [True, True, False]
    assert await bodies(conn, queue_id) == ["1", "2", "3"]


async def test_a_session_that_dies_before_it_has_rolled_back_changes_nothing_of_what_went_wrong(
    store: MessageStore, conn: Connection, queue_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed = queue_id
    (current,) = await ensure_queues(conn, 1, 2, 1)
    ended: list[str] = []

    def execute_or_die(connection: BlockingConnection, statements: str) -> PGresult:
        if statements == "ROLLBACK":
            ended.append(statements)
            _end_session(connection)
        return execute(connection, statements)

    monkeypatch.setattr(transaction, "execute", execute_or_die)
    async with open_appender(store) as appender:
        with pytest.raises(LayoutChangedError):
            await appender.append([frame(new_publisher(), 1, [message(sealed, "a")])])
        (result,) = await appender.append([frame(new_publisher(), 1, [message(current.queue_id, "b")])])

    assert len(ended) == 1
    assert places(result) == [(current.queue_id, 0)]


async def test_an_appender_goes_on_once_the_store_is_back(store: MessageStore, conn: Connection, queue_id: int) -> None:
    publisher = new_publisher()
    is_away = True

    def connect() -> BlockingConnection:
        if is_away:
            raise psycopg.OperationalError("connection refused")
        return store.connect_blocking()

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
    opened: list[BlockingConnection] = []

    def connect() -> BlockingConnection:
        opened.append(store.connect_blocking())
        return opened[-1]

    async with open_appender(store, connect=connect) as appender:
        await appender.append([frame(new_publisher(), 1, [message(queue_id)])])
        shown = [
            opened[0].execute(f"SHOW {name}").fetchone()
            for name in (
                "statement_timeout",
                "idle_in_transaction_session_timeout",
                "lock_timeout",
                "synchronous_commit",
            )
        ]

    assert shown == [("2s",), ("2s",), ("1s",), ("on",)]
