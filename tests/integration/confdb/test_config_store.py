"""The store turns "no database" into one error, and nothing else into it."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack

import psycopg
import pytest
import sqlalchemy as sa

from confdb.services import ConfigService
from confdb.services.changes import Changes
from confdb.snapshot import read_version
from confdb.store import ConfigStore
from msgbroker.contract.errors import ConfigUnavailableError
from tests.support.eventually import eventually

KILL_THE_OTHERS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


async def test_a_server_that_is_not_there_is_reported_as_unavailable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"postgresql://postgres@127.0.0.1:{unused.getsockname()[1]}/postgres"
        async with ConfigStore.open(url) as store:
            with pytest.raises(ConfigUnavailableError, match="out of reach"):
                await read_version(store)
            with pytest.raises(ConfigUnavailableError):
                await ConfigService(store, "test").topics.create("default", "TP_TRADE")
            with pytest.raises(ConfigUnavailableError):
                await store.connect_dedicated()


async def test_after_a_restart_of_the_server_the_pool_finds_back_by_itself(
    store: ConfigStore, database_url: str
) -> None:
    version = await read_version(store)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(KILL_THE_OTHERS)

    assert await read_version(store) == version


async def test_a_connection_lost_in_a_change_is_an_outage_and_leaves_no_trace(
    store: ConfigStore, database_url: str
) -> None:
    async def change_over_a_lost_connection() -> None:
        async with Changes(store, "test").begin() as change:
            with psycopg.connect(database_url, autocommit=True) as connection:
                connection.execute(KILL_THE_OTHERS)
            await change.session.execute(sa.text("SELECT 1"))

    with pytest.raises(ConfigUnavailableError):
        await change_over_a_lost_connection()

    assert await read_version(store) == 1


async def test_a_standby_that_takes_no_writes_is_an_outage(store: ConfigStore, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')

    with pytest.raises(ConfigUnavailableError, match="read-only"):
        await ConfigService(store, "test").topics.create("default", "TP_TRADE")


async def test_a_process_that_was_frozen_in_a_transaction_has_had_an_outage(
    store: ConfigStore, database_url: str
) -> None:
    async def freeze() -> None:
        async with store.transaction() as session:
            await session.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = '20ms'"))
            backend = (await session.execute(sa.text("SELECT pg_backend_pid()"))).scalar_one()
            with psycopg.connect(database_url, autocommit=True) as observer:
                find = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
                await eventually(lambda: observer.execute(find, (backend,)).fetchone() is None)
            await session.execute(sa.text("SELECT 1"))

    with pytest.raises(ConfigUnavailableError, match="timeout"):
        await freeze()


async def test_all_connections_in_use_is_an_outage_and_no_endless_wait(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("confdb.store.CONNECT_TIMEOUT_SECONDS", 0.1)
    async with ConfigStore.open(database_url, pool_size=1) as store, store.single_statement():
        with pytest.raises(ConfigUnavailableError, match="busy"):
            await read_version(store)


async def test_a_mistake_in_a_statement_is_not_taken_for_an_outage(store: ConfigStore) -> None:
    async with store.single_statement() as connection:
        with pytest.raises(sa.exc.ProgrammingError):
            await connection.execute(sa.text("SELEC 1"))


async def test_a_change_left_open_does_not_hold_up_the_others_for_long(store: ConfigStore) -> None:
    async with Changes(store, "test").begin() as change:
        bounds = await change.session.execute(
            sa.text("SELECT current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout')")
        )
        assert bounds.one() == ("5s", "10s")


async def test_a_connection_that_is_lent_when_the_store_closes_is_closed_as_well(database_url: str) -> None:
    async with AsyncExitStack() as lent, ConfigStore.open(database_url) as store:
        connection = await lent.enter_async_context(store.single_statement())
        pid = await connection.scalar(sa.text("SELECT pg_backend_pid()"))
    with psycopg.connect(database_url, autocommit=True) as observer:
        sessions = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
        await eventually(lambda: observer.execute(sessions, [pid]).fetchone() is None, 5.0)
