"""The marker of a database's history: the same for everybody, another one after every promotion."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import msgdb.postgres.history
from msgbroker.contract.errors import StoreUnavailableError
from msgdb.log.queues import ensure_queues
from msgdb.postgres.connections import Connection, ConnectionConfig, SessionLimits, connect
from msgdb.postgres.history import History, find_history, find_history_blocking, note_history
from msgdb.store import MessageStore
from tests.support.relay import Relay
from tests.support.replicated_postgres import ReplicatedPostgres


async def noted(url: str) -> History:
    async with await connect(ConnectionConfig(url)) as conn:
        return await note_history(conn)


async def test_it_stays_while_nothing_was_promoted(conn: Connection, database_url: str) -> None:
    first = await find_history(conn)
    assert first is not None
    assert first.epoch_floor == 0
    assert first.age_seconds > 1_000_000_000, "it has been there for ever"
    noted = await note_history(conn)
    assert noted.history_id == first.history_id
    with psycopg.connect(database_url) as blocking:
        found = find_history_blocking(blocking)
    assert found is not None
    assert found.history_id == first.history_id


async def test_one_that_was_met_before_the_clock_was_set_back_is_new(conn: Connection) -> None:
    await conn.execute("UPDATE log_history SET begun_at = clock_timestamp() + interval '1 hour'")

    found = await find_history(conn)

    assert found is not None
    assert found.age_seconds == 0.0


async def test_a_promoted_standby_has_another_and_those_who_meet_it_together_agree(
    replicated: ReplicatedPostgres,
) -> None:
    before = await noted(replicated.primary_url)
    replicated.fail_over()
    async with await connect(ConnectionConfig(replicated.url)) as conn:
        assert await find_history(conn) is None
    met = await asyncio.gather(*(noted(replicated.url) for _ in range(5)))

    assert len({history.history_id for history in met}) == 1
    assert met[0].history_id != before.history_id
    assert met[0].epoch_floor > before.epoch_floor + (1 << 31)
    assert all(0 <= history.age_seconds < 60 for history in met)


class FrozenWithTheLock(psycopg.AsyncConnection[TupleRow]):
    """Of a broker that is frozen once it has the lock."""

    has_lock: asyncio.Event

    async def execute(self, query: Any, *args: Any, **options: Any) -> psycopg.AsyncCursor[TupleRow]:
        cursor = await super().execute(query, *args, **options)
        if query == msgdb.postgres.history._LOCK:
            self.has_lock.set()
            await asyncio.Event().wait()
        return cursor


async def test_who_freezes_while_it_notes_a_history_holds_nobody_up(conn: Connection, database_url: str) -> None:
    frozen = await FrozenWithTheLock.connect(database_url, autocommit=True)
    frozen.has_lock = asyncio.Event()
    freezing = asyncio.create_task(note_history(frozen, SessionLimits(idle_in_transaction_seconds=0.05)))
    await frozen.has_lock.wait()

    noted = await note_history(conn, SessionLimits(lock_seconds=10, statement_seconds=10))

    assert noted.epoch_floor == 0
    freezing.cancel()
    await asyncio.gather(freezing, return_exceptions=True)
    await frozen.close()


async def test_a_server_that_hangs_while_a_history_is_noted_is_given_up(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        Relay.to(database_url) as relay,
        MessageStore.open(relay.url, limits=SessionLimits(in_use_seconds=0.1)) as store,
    ):

        async def note_when_it_hangs(connection: Connection, limits: SessionLimits | None) -> History:
            relay.freeze()
            return await note_history(connection, limits)

        monkeypatch.setattr("msgdb.store.note_history", note_when_it_hangs)
        with pytest.raises(StoreUnavailableError):
            await store.follow_history()


async def test_ids_of_queues_that_were_lost_are_not_given_out_again(replicated: ReplicatedPostgres) -> None:
    async with await connect(ConnectionConfig(replicated.primary_url)) as conn:
        (kept,) = await ensure_queues(conn, 1, 1, 1)
        replicated.wait_until_followed()
        replicated.take_standby_away()
        lost = await ensure_queues(conn, 2, 1, 200)
    replicated.fail_over()
    await noted(replicated.url)
    async with await connect(ConnectionConfig(replicated.url)) as conn:
        made = await ensure_queues(conn, 3, 1, 1)

    assert min(queue.queue_id for queue in made) > max(queue.queue_id for queue in [kept, *lost])


async def test_a_standby_is_no_place_to_write(replicated: ReplicatedPostgres) -> None:
    async with await connect(ConnectionConfig(replicated.standby.url("center"))) as conn:
        with pytest.raises(StoreUnavailableError, match="standby"):
            await find_history(conn)


@pytest.mark.parametrize("pooled", [False, True])
async def test_a_store_that_follows_it_lends_nothing_before_it_has_told_of_a_new_one(
    replicated: ReplicatedPostgres, *, pooled: bool
) -> None:
    async with MessageStore.open(replicated.url, pooled=pooled) as store:
        told: list[History] = []
        first = await store.follow_history()
        store.on_new_history(told.append)
        async with store.transaction() as conn:
            await conn.execute("SELECT 1")
        await asyncio.to_thread(lambda: store.connect_blocking().close())
        assert told == []

        replicated.fail_over()
        refusals = 0
        while True:
            try:
                async with store.transaction() as conn:
                    await conn.execute("SELECT 1")
            except StoreUnavailableError:
                assert refusals < 20
                refusals += 1
            else:
                break

    (second,) = told
    assert second.history_id != first.history_id
    assert store.history == second


async def test_a_blocking_connection_tells_of_it_as_well(replicated: ReplicatedPostgres) -> None:
    async with MessageStore.open(replicated.url) as store:
        told: list[History] = []
        await store.follow_history()
        store.on_new_history(told.append)
        replicated.fail_over()
        with pytest.raises(StoreUnavailableError, match="history"):
            await asyncio.to_thread(store.connect_blocking)
        await asyncio.to_thread(lambda: store.connect_blocking().close())

    assert len(told) == 1


async def test_whatever_leads_to_the_former_history_is_cut_as_the_store_turns(replicated: ReplicatedPostgres) -> None:
    # The former primary is alive: nobody but the store itself would break these.
    async with Relay.to(replicated.primary_url) as relay, MessageStore.open(relay.url) as store:
        first = await store.follow_history()
        async with store.connection() as lent, await store.connect_dedicated() as dedicated:
            with closing(await asyncio.to_thread(store.connect_blocking)) as blocking:
                async with store.connection() as idle_soon:
                    await idle_soon.execute("SELECT 1")
                await asyncio.to_thread(replicated.promote)
                relay.lead_to(replicated.standby.url("center"))
                with pytest.raises(StoreUnavailableError, match="history"):
                    await store.connect_dedicated()
                with pytest.raises(psycopg.OperationalError):
                    await asyncio.to_thread(blocking.execute, "SELECT 1")
            with pytest.raises(psycopg.OperationalError):
                await lent.execute("SELECT 1")
            with pytest.raises(psycopg.OperationalError):
                await dedicated.execute("SELECT 1")
            async with store.connection() as conn:
                found = await find_history(conn)

    assert found is not None
    assert found.history_id == store.history.history_id != first.history_id
