"""The store's connections: outages are translated, and end when they end."""

from __future__ import annotations

import asyncio
from contextlib import closing

import psycopg
import pytest

from msgbroker.contract.errors import LookTooLongError, StoreUnavailableError
from msgdb.postgres.connections import (
    BlockingConnection,
    Connection,
    ConnectionConfig,
    ConnectionPool,
    connect_blocking,
)
from msgdb.store import MessageStore, SessionLimits
from tests.support.eventually import eventually
from tests.support.relay import Relay


async def backend_id(conn: Connection) -> int:
    row = await (await conn.execute("SELECT pg_backend_pid()")).fetchone()
    assert row is not None
    return int(row[0])


def terminate(url: str, backend: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 5000)", (backend,))


async def test_a_connection_is_used_again(store: MessageStore) -> None:
    async with store.connection() as conn:
        first = await backend_id(conn)
    async with store.connection() as conn:
        assert await backend_id(conn) == first


async def test_a_transaction_commits_when_its_block_ends_well(store: MessageStore) -> None:
    async with store.transaction() as conn:
        await conn.execute("INSERT INTO queue (topic_id, generation, ordinal) VALUES (1, 1, 0)")
    async with store.connection() as conn:
        assert await (await conn.execute("SELECT count(*) FROM queue")).fetchone() == (1,)


async def test_a_transaction_leaves_nothing_when_its_block_fails(store: MessageStore) -> None:
    async def fail_halfway() -> None:
        async with store.transaction() as conn:
            await conn.execute("INSERT INTO queue (topic_id, generation, ordinal) VALUES (1, 1, 0)")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_halfway()
    async with store.connection() as conn:
        assert await (await conn.execute("SELECT count(*) FROM queue")).fetchone() == (0,)


async def test_a_connection_lost_in_use_is_reported_as_the_store_being_out_of_reach(
    store: MessageStore, database_url: str
) -> None:
    async def lose_it() -> None:
        async with store.connection() as conn:
            terminate(database_url, await backend_id(conn))
            await conn.execute("SELECT 1")

    with pytest.raises(StoreUnavailableError):
        await lose_it()

    await store.ping()


async def test_connections_lost_while_idle_are_not_noticed_by_anyone(store: MessageStore, database_url: str) -> None:
    async with store.connection() as conn, store.connection() as other:
        lost = [await backend_id(conn), await backend_id(other)]
    for backend in lost:
        terminate(database_url, backend)

    async with store.connection() as conn:
        assert await backend_id(conn) not in lost


async def test_a_store_that_refuses_connections_is_out_of_reach() -> None:
    async with MessageStore.open("postgresql://postgres@127.0.0.1:1/none") as store:
        with pytest.raises(StoreUnavailableError):
            await store.ping()


async def test_a_mistake_in_a_statement_is_not_taken_for_an_outage(store: MessageStore) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable):
        async with store.connection() as conn:
            await conn.execute("SELECT * FROM nowhere")


async def test_a_lock_timeout_is_an_outage_that_may_be_retried(store: MessageStore) -> None:
    async def read_impatiently() -> None:
        async with store.transaction() as conn:
            await conn.execute("SET LOCAL lock_timeout = '10ms'")
            await conn.execute("SELECT * FROM queue")

    async with store.transaction() as holder:
        await holder.execute("LOCK TABLE queue")
        with pytest.raises(StoreUnavailableError, match="55P03"):
            await read_impatiently()


async def test_a_look_that_takes_too_long_is_given_up_and_costs_no_connection(database_url: str) -> None:
    async with MessageStore.open(database_url, pool_size=1) as store:
        for _ in range(2):
            with pytest.raises(LookTooLongError, match="longer than"):
                await look(store, "SELECT pg_sleep(60)", 0.05)
        async with store.connection() as conn:
            left = await (await conn.execute("SHOW statement_timeout")).fetchone()
            assert left == ("0",)


async def look(store: MessageStore, statement: str, seconds_max: float = 5.0) -> None:
    async with store.looking(seconds_max) as conn:
        await conn.execute(statement.encode())


async def test_a_look_changes_nothing(store: MessageStore) -> None:
    with pytest.raises(StoreUnavailableError, match="read-only"):
        await look(store, "DELETE FROM queue")


async def test_waiting_for_a_free_connection_has_an_end(database_url: str) -> None:
    pool = ConnectionPool(ConnectionConfig(database_url, pool_size=1, acquire_timeout_seconds=0.01))
    async with pool.connection():
        with pytest.raises(StoreUnavailableError, match="in use"):
            async with pool.connection():
                pytest.fail("there is only one connection")
    await pool.close()


async def test_a_cancelled_statement_costs_no_connection_of_the_pool(database_url: str) -> None:
    pool = ConnectionPool(ConnectionConfig(database_url, pool_size=1, acquire_timeout_seconds=1))
    entered = asyncio.Event()

    async def wait_long() -> None:
        async with pool.connection() as conn:
            entered.set()
            await conn.execute("SELECT pg_sleep(60)")

    task = asyncio.create_task(wait_long())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    async with pool.connection() as conn:
        await conn.execute("SELECT 1")
    await pool.close()


async def test_nothing_is_prepared_behind_a_pooler(database_url: str) -> None:
    async with MessageStore.open(database_url, pooled=True) as store, store.connection() as conn:
        for _ in range(10):
            await conn.execute("SELECT 1")
        assert await (await conn.execute("SELECT count(*) FROM pg_prepared_statements")).fetchone() == (0,)


_LIMITS_OF_SESSION = """
SELECT current_setting('idle_in_transaction_session_timeout'), current_setting('lock_timeout'),
       current_setting('statement_timeout')
"""
LIMITED = ("2s", "1s", "5s")
UNLIMITED = ("0", "0", "0")


async def limits_of(conn: Connection) -> tuple[object, ...] | None:
    return await (await conn.execute(_LIMITS_OF_SESSION)).fetchone()


async def test_what_the_pool_lends_is_limited_and_a_connection_of_its_own_is_not(database_url: str) -> None:
    async with (
        MessageStore.open(database_url, limits=SessionLimits()) as store,
        store.connection() as lent,
        store.dedicated_connection() as own,
    ):
        assert (await limits_of(lent), await limits_of(own)) == (LIMITED, UNLIMITED)


async def test_behind_a_pooler_transactions_are_limited_and_nothing_stays_on_the_session(database_url: str) -> None:
    async with MessageStore.open(database_url, limits=SessionLimits(), pooled=True) as store:
        async with store.transaction() as conn:
            assert await limits_of(conn) == LIMITED
            async with conn.transaction():
                assert await limits_of(conn) == LIMITED
        async with store.connection() as conn:
            assert await limits_of(conn) == UNLIMITED


async def test_a_process_frozen_in_a_transaction_loses_it(database_url: str) -> None:
    limits = SessionLimits(idle_in_transaction_seconds=0.05)
    async with MessageStore.open(database_url, limits=limits) as store, store.connection() as observer:

        async def freeze() -> None:
            async with store.transaction() as conn:
                backend = await backend_id(conn)
                await eventually(lambda: _is_gone(observer, backend))
                await conn.execute("SELECT 1")

        with pytest.raises(StoreUnavailableError):
            await freeze()


async def test_a_server_that_hangs_is_given_up(database_url: str) -> None:
    async with (
        Relay.to(database_url) as relay,
        MessageStore.open(relay.url, limits=SessionLimits(in_use_seconds=0.1)) as store,
    ):
        await store.ping()
        relay.freeze()
        with pytest.raises(StoreUnavailableError):
            await store.ping()


async def test_a_store_that_is_cut_off_makes_nobody_wait_for_a_server_that_hangs(database_url: str) -> None:
    async with Relay.to(database_url) as relay, MessageStore.open(relay.url) as store:
        async with store.dedicated_connection() as own:
            await store.ping()
            relay.freeze()
            waiting = [asyncio.ensure_future(store.ping()), asyncio.ensure_future(own.execute("SELECT 1"))]
            await relay.frozen.wait()
            store.cut()
            async with asyncio.timeout(1):
                pooled, dedicated = await asyncio.gather(*waiting, return_exceptions=True)

        assert isinstance(pooled, StoreUnavailableError)
        assert isinstance(dedicated, psycopg.OperationalError)
        with pytest.raises(StoreUnavailableError, match="closed"):
            await store.ping()
        with pytest.raises(StoreUnavailableError, match="closed"):
            await store.connect_dedicated()


async def _is_gone(observer: Connection, backend: int) -> bool:
    rows = await observer.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (backend,))
    return await rows.fetchone() is None


async def test_a_connection_that_could_not_be_given_its_limits_is_closed(
    store: MessageStore, database_url: str
) -> None:
    name = "without-limits"
    config = ConnectionConfig(database_url, application_name=name, limits=SessionLimits(lock_seconds=-1.0))
    with pytest.raises(psycopg.Error) as refused:
        async with MessageStore(config).connection():
            pytest.fail("it was lent")

    async def is_gone() -> bool:
        async with store.connection() as conn:
            rows = await conn.execute("SELECT 1 FROM pg_stat_activity WHERE application_name = %s", (name,))
            return await rows.fetchone() is None

    await eventually(is_gone, 3.0)
    assert refused.value.diag.message_primary


async def test_a_blocking_connection_that_is_made_while_all_is_cut_is_cut_too(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect_late(config: ConnectionConfig) -> BlockingConnection:
        connection = connect_blocking(config)
        store.cut()
        return connection

    monkeypatch.setattr("msgdb.store.connect_blocking", connect_late)
    with closing(store.connect_blocking()) as connection, pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
