"""The registry of brokers: who is alive by the database's clock, and who routes by which version."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy import event

from confdb.brokers import BrokerBeat, BrokerRegistry, LiveBroker
from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.contract.errors import SubscriptionNotActiveError
from tests.integration.confdb.conftest import KnownTails
from tests.support.registry import age


def beat_of(broker_id: UUID, *, port: int = 7400, snapshot_version: int = 1, draining: bool = False) -> BrokerBeat:
    return BrokerBeat(
        broker_id=broker_id,
        address=f"127.0.0.1:{port}",
        host="host-1",
        pid=42,
        snapshot_version=snapshot_version,
        draining=draining,
        groups={7: 3, 8: 1},
        process_version="0.1.0",
    )


@pytest.fixture
def registry(store: ConfigStore) -> BrokerRegistry:
    return BrokerRegistry(store)


async def test_a_beat_registers_the_broker_and_tells_of_all_live_ones(registry: BrokerRegistry) -> None:
    first, second = uuid4(), uuid4()
    await registry.beat(beat_of(first, port=7401))

    live = await registry.beat(beat_of(second, port=7400, snapshot_version=5, draining=True))

    assert [broker.broker_id for broker in live] == [second, first]
    own = live[0]
    assert (own.address, own.host, own.pid) == ("127.0.0.1:7400", "host-1", 42)
    assert (own.snapshot_version, own.draining, own.process_version) == (5, True, "0.1.0")
    assert own.groups == {7: 3, 8: 1}
    assert abs(own.heartbeat_at - datetime.now(UTC)) < timedelta(minutes=1)
    assert await registry.list_live() == live


async def test_a_heartbeat_from_before_the_clock_was_set_back_is_as_old_as_the_next_beat(
    registry: BrokerRegistry, store: ConfigStore
) -> None:
    dead, living = uuid4(), uuid4()
    await registry.beat(beat_of(dead, port=7401))
    await registry.beat(beat_of(living, port=7400))
    async with store.transaction() as session:
        await session.execute(sa.text("UPDATE broker SET heartbeat_at = heartbeat_at + interval '1 hour'"))

    # A living broker counts all the same until it beats.
    assert len(await registry.beat(beat_of(living, port=7400))) == 2
    own, other = await registry.list_live()
    assert abs(own.heartbeat_at - other.heartbeat_at) < timedelta(seconds=1)

    async with store.transaction() as session:
        await session.execute(sa.text("UPDATE broker SET heartbeat_at = heartbeat_at - interval '6 seconds'"))
    assert [broker.broker_id for broker in await registry.beat(beat_of(living, port=7400))] == [living]


async def test_a_later_beat_replaces_what_the_broker_said_before(registry: BrokerRegistry) -> None:
    broker_id = uuid4()
    (before,) = await registry.beat(beat_of(broker_id))

    (after,) = await registry.beat(beat_of(broker_id, snapshot_version=9, draining=True))

    assert (after.snapshot_version, after.draining) == (9, True)
    assert after.started_at == before.started_at
    assert after.heartbeat_at > before.heartbeat_at


async def test_a_broker_that_has_not_been_heard_of_for_5_seconds_is_not_live(
    registry: BrokerRegistry, database_url: str
) -> None:
    silent, other = uuid4(), uuid4()
    await registry.beat(beat_of(silent))
    age(database_url, silent, 6)

    assert ids(await registry.beat(beat_of(other))) == [other]
    assert ids(await registry.list_live()) == [other]

    assert set(ids(await registry.beat(beat_of(silent)))) == {silent, other}


async def test_a_broker_silent_for_an_hour_is_forgotten_and_one_for_a_minute_is_kept(
    registry: BrokerRegistry, database_url: str
) -> None:
    long_gone, lately_gone, beating = uuid4(), uuid4(), uuid4()
    for broker_id in (long_gone, lately_gone):
        await registry.beat(beat_of(broker_id))
    age(database_url, long_gone, 3_700)
    age(database_url, lately_gone, 60)

    await registry.beat(beat_of(beating))

    with psycopg.connect(database_url) as connection:
        kept = {row[0] for row in connection.execute("SELECT broker_id FROM broker").fetchall()}
    assert kept == {lately_gone, beating}


async def test_pruning_does_not_wait_for_a_row_that_somebody_holds(registry: BrokerRegistry, database_url: str) -> None:
    held = uuid4()
    await registry.beat(beat_of(held))
    age(database_url, held, 3_700)
    with psycopg.connect(database_url) as holding:
        holding.execute("SELECT 1 FROM broker WHERE broker_id = %s FOR UPDATE", [held])

        async with asyncio.timeout(5):
            await registry.beat(beat_of(uuid4()))


async def test_a_broker_that_stops_in_good_order_leaves_at_once(registry: BrokerRegistry) -> None:
    leaving, staying = uuid4(), uuid4()
    await registry.beat(beat_of(leaving))
    await registry.beat(beat_of(staying))

    await registry.leave(leaving)
    await registry.leave(leaving)

    assert ids(await registry.list_live()) == [staying]


async def test_a_beat_is_one_statement(store: ConfigStore, registry: BrokerRegistry) -> None:
    await registry.list_live()
    statements: list[str] = []

    def note(_connection: sa.Connection, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    event.listen(store._engine.sync_engine, "before_cursor_execute", note)
    await registry.beat(beat_of(uuid4()))

    assert len(statements) == 1


async def test_waiting_ends_when_every_live_broker_routes_by_the_version(
    service: ConfigService, registry: BrokerRegistry
) -> None:
    current, behind = uuid4(), uuid4()
    await registry.beat(beat_of(current, snapshot_version=6))
    await registry.beat(beat_of(behind, snapshot_version=4))

    waiting = asyncio.create_task(service.wait_until_active(5))
    done, _ = await asyncio.wait([waiting], timeout=0.3)
    assert not done

    await registry.beat(beat_of(behind, snapshot_version=5))
    async with asyncio.timeout(5):
        await waiting


async def test_waiting_in_vain_names_the_brokers_that_are_behind(
    service: ConfigService, registry: BrokerRegistry
) -> None:
    await registry.beat(beat_of(uuid4(), port=7401, snapshot_version=5))
    await registry.beat(beat_of(uuid4(), port=7402, snapshot_version=4))

    with pytest.raises(SubscriptionNotActiveError) as refusal:
        await service.wait_until_active(5, timeout_seconds=0.0, group="SG_POINTS")

    assert refusal.value.facts == {
        "group": "SG_POINTS",
        "waiting_for": "broker 127.0.0.1:7402 (version 4 of 5)",
    }


async def test_without_a_live_broker_there_is_nothing_to_wait_for(
    service: ConfigService, registry: BrokerRegistry, database_url: str
) -> None:
    dead = uuid4()
    await registry.beat(beat_of(dead, snapshot_version=1))
    age(database_url, dead, 6)

    await service.wait_until_active(5, timeout_seconds=0.0)


async def test_a_broker_that_is_cut_off_but_holds_lanes_is_waited_for(
    service: ConfigService, registry: BrokerRegistry, tails: KnownTails, database_url: str
) -> None:
    cut_off = uuid4()
    await registry.beat(beat_of(cut_off, snapshot_version=4))
    age(database_url, cut_off, 60)
    tails.owners = {cut_off}

    with pytest.raises(SubscriptionNotActiveError, match=str(cut_off)):
        await service.wait_until_active(5, timeout_seconds=0.0)

    tails.owners = set()
    await service.wait_until_active(5, timeout_seconds=0.0)


async def test_who_is_cut_off_is_told_by_the_mark_before_it_is_asked_who_holds_lanes(
    store: ConfigStore, registry: BrokerRegistry, database_url: str
) -> None:
    cut_off = uuid4()

    class Claiming(KnownTails):
        """A broker that is cut off claims a lane as late as it can, and gives it up because of the mark."""

        async def lane_owners(self) -> set[UUID]:
            return {cut_off} if self.mark[1] == 0 else set()

    tails = Claiming()
    await registry.beat(beat_of(uuid4(), snapshot_version=5))

    await ConfigService(store, "test", tails).wait_until_active(5)

    assert tails.mark[1] == 5


async def test_the_mark_stays_where_only_brokers_that_are_cut_off_serve(
    service: ConfigService, tails: KnownTails
) -> None:
    tails.owners = {uuid4()}

    with pytest.raises(SubscriptionNotActiveError):
        await service.wait_until_active(5, timeout_seconds=0.0)

    assert tails.mark[1] == 0


async def test_where_confdb_was_restored_to_an_earlier_version_the_mark_begins_anew(
    service: ConfigService, tails: KnownTails, registry: BrokerRegistry
) -> None:
    era, _ = tails.mark = (uuid4(), 1_000)
    version = (await service.topics.create("default", "TP_TRADE")).version
    await registry.beat(beat_of(uuid4(), snapshot_version=version))

    await service.wait_until_active(version)

    assert tails.mark[0] != era
    assert tails.mark[1] == version


def ids(brokers: list[LiveBroker]) -> list[UUID]:
    return [broker.broker_id for broker in brokers]
