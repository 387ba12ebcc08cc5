"""The archive is required once every broker that is running understands it, and that is an act."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from confdb import features
from confdb.brokers import BrokerBeat, BrokerRegistry
from confdb.store import ConfigStore
from msgbroker.contract.errors import FeatureNotEverywhereError, InvalidSettingError
from msgconsole.operations.configuration.archive_switch import require_archive, stop_requiring_archive
from msgconsole.operations.stores import Stores
from msgdb.acts import list_acts
from msgdb.archive.permits import permit
from msgdb.archive.policy import list_policies
from msgdb.archive.stored_days import list_stored_days
from msgdb.day_tables import DAY_TABLES
from msgdb.lanes.leases import claim
from msgdb.log.partitions import list_partitions, today
from msgdb.names import CURSOR, MESSAGE
from msgdb.store import MessageStore
from tests.support.rows import OWNER, lanes_to_claim, make_queue, put_messages
from tests.support.waiting import until_someone_waits_for_a_lock

BY_ADA: dict[str, Any] = {"table": MESSAGE, "actor": "ada", "reason": "auditors"}


@pytest.fixture
async def config(database_url: str) -> AsyncIterator[ConfigStore]:
    async with ConfigStore.open(database_url) as opened:
        yield opened


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[MessageStore]:
    async with MessageStore.open(database_url, pool_size=2) as opened:
        yield opened


def beat_of(port: int, understood: frozenset[str] = features.UNDERSTOOD) -> BrokerBeat:
    return BrokerBeat(
        broker_id=uuid4(),
        address=f"127.0.0.1:{port}",
        host="host-1",
        pid=42,
        snapshot_version=1,
        process_version="0.9.0",
        features=understood,
    )


async def test_the_archive_is_required_from_today_on_and_whoever_did_it_is_known(
    config: ConfigStore, store: MessageStore
) -> None:
    await BrokerRegistry(config).beat(beat_of(7401))

    required = await require_archive(Stores(config, store), **BY_ADA)

    async with store.connection() as conn:
        assert await list_policies(conn) == [required]
        assert required.required_from == await today(conn)
        (act,) = await list_acts(conn)
    assert (act.actor, act.action, act.thing, act.reason) == ("ada", "archive.require", MESSAGE, "auditors")
    assert (act.namespace, act.is_namespace_noted) == (None, True)


async def test_with_the_past_it_is_required_of_all_days_that_are_there(
    config: ConfigStore, store: MessageStore
) -> None:
    async with store.connection() as conn:
        await put_messages(conn, await make_queue(conn), range(1), days_ago=5)

        required = await require_archive(Stores(config, store), **BY_ADA, include_past=True)

        assert required.required_from == await today(conn) - timedelta(days=5)


async def test_it_is_refused_while_a_broker_is_running_that_does_not_understand_it(
    config: ConfigStore, store: MessageStore
) -> None:
    registry = BrokerRegistry(config)
    await registry.beat(beat_of(7401))
    old = beat_of(7402, frozenset())
    await registry.beat(old)

    with pytest.raises(FeatureNotEverywhereError) as raised:
        await require_archive(Stores(config, store), **BY_ADA)

    assert raised.value.facts == {"feature": "archive", "brokers": "broker 127.0.0.1:7402 (version 0.9.0)"}
    async with store.connection() as conn:
        assert (await list_policies(conn), await list_acts(conn)) == ([], [])
    await registry.leave(old.broker_id)
    await require_archive(Stores(config, store), **BY_ADA)


async def test_it_is_refused_while_a_broker_holds_lanes_that_nobody_has_heard_of(
    config: ConfigStore, store: MessageStore
) -> None:
    async with store.connection() as conn:
        await claim(conn, OWNER, lanes_to_claim([await make_queue(conn)]), 60)

    with pytest.raises(FeatureNotEverywhereError, match=f"{OWNER}.*holds lanes"):
        await require_archive(Stores(config, store), **BY_ADA)


async def test_what_is_not_archived_cannot_be_required(config: ConfigStore, store: MessageStore) -> None:
    with pytest.raises(InvalidSettingError):
        await require_archive(Stores(config, store), **{**BY_ADA, "table": CURSOR})


async def test_a_broker_that_starts_later_and_knows_nothing_of_it_drops_no_day_that_is_there_until_it_is_left(
    config: ConfigStore, store: MessageStore
) -> None:
    async with store.connection() as conn:
        (oldest, *_) = await list_partitions(conn, MESSAGE)
        await require_archive(Stores(config, store), **BY_ADA)

        with pytest.raises(psycopg.errors.DependentObjectsStillExist):
            await conn.execute(f"DROP TABLE {oldest.name}".encode())

        await stop_requiring_archive(Stores(config, store), **BY_ADA)
        await conn.execute(f"DROP TABLE {oldest.name}".encode())


async def test_no_day_is_held_any_more_where_a_broker_was_asking_for_it_as_the_archive_was_left(
    config: ConfigStore, store: MessageStore
) -> None:
    await require_archive(Stores(config, store), **BY_ADA)
    async with store.dedicated_connection() as conn, store.dedicated_connection() as watching:
        # Made since, so that it is held from the first time on that it is asked for.
        await put_messages(conn, await make_queue(conn), range(1), days_ago=8)
        (oldest, *_) = await list_stored_days(conn, DAY_TABLES[MESSAGE], await today(conn))
        async with conn.transaction():
            await permit(conn, oldest)
            stopping = asyncio.create_task(stop_requiring_archive(Stores(config, store), **BY_ADA))
            await until_someone_waits_for_a_lock(watching)
        assert await stopping

        await conn.execute(f"DROP TABLE {oldest.name}".encode())


async def test_it_can_be_left_at_any_time(config: ConfigStore, store: MessageStore) -> None:
    await require_archive(Stores(config, store), **BY_ADA)
    await BrokerRegistry(config).beat(beat_of(7402, frozenset()))

    assert [await stop_requiring_archive(Stores(config, store), **BY_ADA) for _ in range(2)] == [True, False]
    async with store.connection() as conn:
        assert await list_policies(conn) == []
