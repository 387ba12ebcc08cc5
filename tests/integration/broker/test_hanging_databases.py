"""Databases that hang, and others that hold locks: what a broker goes on doing, what it says, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from grpc_health.v1 import health_pb2

from confdb.brokers import BrokerBeat, BrokerRegistry, LiveBroker
from confdb.services import ConfigService
from msgbroker.client import MessageCenter
from msgbroker.engine.lane.lane import Lane
from msgbroker.server.app import Broker
from msgbroker.server.deliver.lane_turns import InstanceTurns
from msgbroker.server.log.message import LogMessage
from msgdb.postgres.connections import Connection
from msgdb.reports.alarms import AlarmKind
from msgdb.store import MessageStore
from tests.support.broker_fixtures import LEASE_SECONDS, StartBroker
from tests.support.collecting import PAID, TOPIC, register_group, subscribed
from tests.support.eventually import eventually
from tests.support.health import NOT_SERVING, SERVING, health
from tests.support.relay import Relay

_END_SECONDS_MAX = 4.5
_CLAIMED_BY_THE_DEAD = """
INSERT INTO cursor (group_id, member, queue_id, acked_offset, owner, epoch, lease_until)
SELECT %s, '', queue_id, 0, gen_random_uuid(), 1, clock_timestamp() FROM queue
"""


@pytest.fixture
async def relay(database_url: str) -> AsyncIterator[Relay]:
    async with Relay.to(database_url) as relay:
        yield relay


@pytest.fixture
async def conn(message_store: MessageStore) -> AsyncIterator[Connection]:
    async with message_store.connection() as conn:
        yield conn


def lanes(broker: Broker) -> set[int]:
    return {queue_id for group in broker.hub.groups.values() for queue_id in group.lanes}


async def first_lease_end(conn: Connection) -> float:
    row = await (await conn.execute("SELECT extract(epoch FROM min(lease_until))::float8 FROM cursor")).fetchone()
    assert row is not None
    return float(row[0])


async def owners(conn: Connection) -> list[Any]:
    return await (await conn.execute("SELECT owner FROM cursor WHERE owner IS NOT NULL")).fetchall()


async def test_a_lane_whose_row_a_frozen_peer_has_locked_does_not_hold_up_the_others(
    trade: ConfigService, broker: Broker, conn: Connection, database_url: str
) -> None:
    await register_group(trade)
    route = next(iter(broker.feed.current.groups.values()))
    await conn.execute(_CLAIMED_BY_THE_DEAD, (route.group_id,))
    (held,) = await (await conn.execute("SELECT min(queue_id) FROM cursor")).fetchone() or (0,)
    async with await psycopg.AsyncConnection.connect(database_url) as frozen:
        await frozen.execute("SELECT FROM cursor WHERE queue_id = %s FOR UPDATE", (held,))
        async with subscribed(broker.address):
            await eventually(lambda: len(lanes(broker)) == 3, 2)
            mine = "SELECT extract(epoch FROM min(lease_until))::float8 FROM cursor WHERE queue_id <> %s"

            async def lease_end() -> float:
                row = await (await conn.execute(mine, (held,))).fetchone()
                return 0.0 if row is None else float(row[0])

            claimed_until = await lease_end()

            async def is_renewed() -> bool:
                return await lease_end() > claimed_until

            await eventually(is_renewed, LEASE_SECONDS)
            assert held not in lanes(broker)

            await frozen.rollback()
            await eventually(lambda: held in lanes(broker), 2)


async def test_lanes_are_renewed_and_served_while_the_configuration_hangs(
    trade: ConfigService, start_broker: StartBroker, relay: Relay, conn: Connection
) -> None:
    broker = await start_broker(confdb_url=relay.url)
    await register_group(trade)
    async with MessageCenter(broker.address) as center, subscribed(broker.address) as got:
        await eventually(lambda: len(lanes(broker)) == 4)
        relay.freeze()
        hung_at = await first_lease_end(conn)

        async def a_lease_has_gone_by() -> bool:
            return await first_lease_end(conn) > hung_at + LEASE_SECONDS

        await eventually(a_lease_has_gone_by, 2 * LEASE_SECONDS)
        await center.publish(TOPIC, PAID, "all the same")
        await got.until(1, 1)

        assert await (await conn.execute("SELECT DISTINCT epoch FROM cursor")).fetchall() == [(1,)]

        async def it_says_so() -> bool:
            return await health(broker.address, "confdb") == NOT_SERVING

        await eventually(it_says_so, 5)
        await relay.restore()


async def test_health_says_that_the_store_hangs_and_nothing_else_of_the_configuration(
    start_broker: StartBroker, relay: Relay
) -> None:
    broker = await start_broker(msgdb_url=relay.url)

    async def store_is(status: int) -> bool:
        return await health(broker.address, "msgdb") == status

    # Connections are there, and stay: no new one shows that the server hangs.
    await broker.grpc_door.health.check_once()
    assert await store_is(SERVING)
    relay.freeze()
    await eventually(lambda: store_is(NOT_SERVING), 5)
    assert await health(broker.address, "confdb") == health_pb2.HealthCheckResponse.SERVING

    await relay.restore()
    await eventually(lambda: store_is(SERVING), 5)


async def test_a_broker_whose_configuration_hangs_gives_up_its_lanes_and_ends_in_time(
    trade: ConfigService, start_broker: StartBroker, relay: Relay, conn: Connection
) -> None:
    broker = await start_broker(confdb_url=relay.url, drain_seconds=0)
    await register_group(trade)
    async with subscribed(broker.address):
        await eventually(lambda: len(lanes(broker)) == 4)
        relay.freeze()
        await relay.frozen.wait()
        async with asyncio.timeout(_END_SECONDS_MAX):
            await broker.shut_down()

    assert await owners(conn) == []
    await relay.restore()


async def test_a_broker_whose_store_hangs_ends_in_time(
    trade: ConfigService, start_broker: StartBroker, relay: Relay
) -> None:
    broker = await start_broker(msgdb_url=relay.url, drain_seconds=0)
    await register_group(trade)
    async with subscribed(broker.address):
        await eventually(lambda: len(lanes(broker)) == 4)
        relay.freeze()
        await relay.frozen.wait()
        async with asyncio.timeout(_END_SECONDS_MAX):
            await broker.shut_down()
    await relay.restore()


async def test_a_change_from_just_before_a_broker_joined_is_known_to_it_before_it_serves(
    config: ConfigService, start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat = BrokerRegistry.beat
    beaten: list[int] = []

    async def beat_late(self: BrokerRegistry, said: BrokerBeat) -> list[LiveBroker]:
        if not beaten:
            # The broker has loaded its snapshot; nobody knows of it yet, so nobody waits for it.
            change = await config.topics.create("default", TOPIC)
            await config.wait_until_active(change.version)
        beaten.append(said.snapshot_version)
        return await beat(self, said)

    monkeypatch.setattr(BrokerRegistry, "beat", beat_late)
    broker = await start_broker()

    assert ("default", TOPIC) in broker.feed.current.topics
    assert broker.cluster.heartbeats.beaten_version == broker.feed.current.version


async def test_a_mistake_in_a_read_sets_the_lane_aside_until_it_goes_well(
    trade: ConfigService, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_group(trade)

    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    async with subscribed(broker.address) as got, MessageCenter(broker.address) as center:
        await eventually(lambda: len(lanes(broker)) == 4)
        with monkeypatch.context() as mistakes:
            mistakes.setattr(broker.hub.cache, "find", lambda *_: None)
            mistakes.setattr(broker.hub.cache, "read", fail)
            await center.publish(TOPIC, PAID, "unreadable")
            await eventually(lambda: broker.alarms.standing, what="an alarm")
            assert {alarm.kind for alarm in broker.alarms.standing} == {AlarmKind.LANE_SET_ASIDE}
        await got.until(1)
        await eventually(lambda: not broker.alarms.standing, what="no alarm any more")


async def test_a_lane_whose_state_fails_is_claimed_anew_and_loses_nothing(
    trade: ConfigService, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_group(trade)
    failures: list[str] = []
    take = Lane.take

    def fail_once(lane: Lane[LogMessage], *given: Any, **named: Any) -> Any:
        if not failures:
            failures.append("once")
            raise ZeroDivisionError
        return take(lane, *given, **named)

    monkeypatch.setattr(Lane, "take", fail_once)
    async with subscribed(broker.address) as got, MessageCenter(broker.address) as center:
        await eventually(lambda: len(lanes(broker)) == 4)
        await center.publish(TOPIC, PAID, "handed out in the end")

        assert await got.until(1, 20) == ["handed out in the end"]
        assert failures


async def test_a_mistake_in_a_turn_of_the_pump_ends_the_broker(
    trade: ConfigService, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_group(trade)

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    async with subscribed(broker.address), MessageCenter(broker.address) as center:
        await eventually(lambda: len(lanes(broker)) == 4)
        # In the order of turns: not what any lane does.
        monkeypatch.setattr(InstanceTurns, "next", fail)
        await center.publish(TOPIC, PAID, "never handed out")
        with pytest.raises(ZeroDivisionError):
            async with asyncio.timeout(5):
                await broker.wait_until_failed()
        await broker.shut_down()


async def test_a_lane_whose_lease_has_passed_is_given_up_even_if_it_is_renewed_later(
    trade: ConfigService, broker: Broker, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_group(trade)
    async with subscribed(broker.address) as got, MessageCenter(broker.address) as center:
        await eventually(lambda: len(lanes(broker)) == 4)
        # As if the process had been frozen until now: a turn of the pump finds it passed before the tick does.
        monkeypatch.setattr(broker.hub, "tick_once", lambda _: None)
        for group in broker.hub.groups.values():
            for owned in group.lanes.values():
                owned.lease_until = 0.0
        await center.publish(TOPIC, PAID, "after the freeze")

        assert await got.until(1, 5) == ["after the freeze"]

    async def is_claimed_anew() -> bool:
        return await (await conn.execute("SELECT DISTINCT epoch FROM cursor")).fetchall() == [(2,)]

    await eventually(is_claimed_anew)
